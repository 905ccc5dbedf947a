"""Leaderboards: the routes under /v1, from a parsed path to an answer.

Knows: the order of checks, which reads are prepared for the hot path, what the read path is asked.
Must not know: Redis, freshness, how lifetimes are written, what becomes of errors.
"""

from __future__ import annotations

import json
from math import inf
from typing import NamedTuple, Protocol

from gateway.boards import Boards, Resolution
from gateway.clock import Clock
from gateway.encode import Rendering, rendering_of
from gateway.http import params, paths
from gateway.http.answers import Answer
from gateway.http.exchange import Exchange
from gateway.http.hot import Codings, HotAnswers, Prepared, Representation
from gateway.http.params import Params
from gateway.http.paths import Path
from gateway.http.responses import SHOWN_S, Responses
from gateway.http.tally import Tally
from gateway.model import Board, Kind, Query, Target
from gateway.readpath import Reply

_KEPT_NAMES = 1024
_KEPT_TARGET_BYTES = 512
"""Longer request targets are not prepared for the hot path: nobody polls them, and they would make its bound soft. Nor
are those with parameters that mean nothing: they would be second entries of one answer, and clients can invent them."""


class Reads(Protocol):
    """What HTTP needs of the read path."""

    async def read(self, query: Query) -> Reply:
        """Answer one query, or raise an error of ``gateway.errors``."""
        ...


class Leaderboards:
    """Answer the routes under /v1."""

    def __init__(
        self,
        *,
        boards: Boards,
        reads: Reads,
        responses: Responses,
        clock: Clock,
        tally: Tally,
        codings: Codings,
        hot: HotAnswers,
    ) -> None:
        self._boards = boards
        self._reads = reads
        self._responses = responses
        self._monotonic, self._wall = clock.monotonic, clock.wall
        self._tally = tally
        self._codings = codings
        self._hot = hot
        self._names: dict[bytes, Resolution] = {}
        self._shared: tuple[object, Representation] | None = None
        self._catalogue = rendering_of(_catalogue_body(boards.catalogue))

    async def answer(self, exchange: Exchange, path: Path) -> Answer:
        """Check and read; raise the error that the first failing check, or the read, ends in."""
        route = path.route
        if route == "catalogue":
            return self._answer_catalogue(exchange)
        known = self._names.get(path.leaderboard)
        name = None if known is not None else paths.leaderboard_name(path.leaderboard)
        member = paths.member_id(path.member) if path.member else b""
        asked = params.parse(route, exchange.scope["query_string"])
        wall = self._wall()
        if known is None or asked.period is not None or not known.since <= wall < known.until:
            known = self._resolve(path.leaderboard, name, asked.period, wall)
        if route in {"top", "ranks", "board"}:
            return await self._snapshot(exchange, Query(route, known.target, asked.first, asked.last), known)
        return await self._member(exchange, _member_query(route, known.target, member, asked))

    def resolution_of(self, segment: bytes) -> Resolution | None:
        """Return what a leaderboard's segment means now, if it was asked for before and means the same still."""
        known = self._names.get(segment)
        return known if known is not None and known.since <= self._wall() < known.until else None

    async def _member(self, exchange: Exchange, query: Query) -> Answer:
        reply = await self._read(exchange, query)
        assert isinstance(reply.body, bytes)  # noqa: S101 - the read path's promise
        return Answer(200, self._responses.uncached(reply, exchange.request_id), reply.body)

    def _resolve(self, segment: bytes, name: str | None, period: str | None, wall: float) -> Resolution:
        found = self._boards.resolution(name or paths.leaderboard_name(segment), period, wall)
        if period is None:
            if len(self._names) >= _KEPT_NAMES:
                self._names.clear()
            self._names[segment] = found
        return found

    async def _read(self, exchange: Exchange, query: Query) -> Reply:
        """Read, and count how it ended."""
        kind = query.kind
        try:
            reply = await self._reads.read(query)
            exchange.outcome = reply.outcome
            self._tally.reads[kind, reply.outcome][0] += 1
        except BaseException as error:
            exchange.outcome = self._tally.failed(kind, error)
            raise
        finally:
            self._tally.durations[kind].observe(self._monotonic() - exchange.started)
        return reply

    async def _snapshot(self, exchange: Exchange, query: Query, resolution: Resolution) -> Answer:
        reply = await self._read(exchange, query)
        body = reply.body
        assert isinstance(body, Rendering)  # noqa: S101 - the read path's promise
        headers = exchange.scope["headers"]
        if not query.target.board.cache_top:
            fields = self._responses.uncached_snapshot(reply, exchange.request_id)
            return Representation(body, fields, self._codings, validated=False).pick(headers)
        wall = self._wall()
        boundary = self._boundary(query, resolution, wall)
        representation = self._representation(reply, body, resolution, boundary, wall)
        if reply.outcome in {"hit", "stale"}:
            # Not misses: what is given again comes out of the store, and has to say so.
            self._prepare(exchange, query.kind, reply, Again(representation, boundary))
        return representation.pick(headers)

    def _representation(
        self, reply: Reply, body: Rendering, resolution: Resolution, boundary: float, wall: float
    ) -> Representation:
        """Return the representation of a reply: for a crowd that waited for one flight it is made once."""
        if reply.stale or resolution.target.period is not None:
            common = self._responses.snapshot(reply, body.etag, resolution, boundary, wall)
            return Representation(body, common, self._codings)
        said = (id(body), resolution.target.leaderboard, reply.outcome, reply.as_of, reply.stored)
        if self._shared is None or self._shared[0] != said:
            common = self._responses.snapshot(reply, body.etag, resolution, boundary, wall)
            # The representation holds the body, so that no other can come to have its id meanwhile.
            self._shared = (said, Representation(body, common, self._codings))
        return self._shared[1]

    def _boundary(self, query: Query, resolution: Resolution, wall: float) -> float:
        """Return the wall instant no lifetime may reach past: an alias's next change, for the board's route any."""
        calendar = query.target.board.calendar
        if query.kind != "board" or calendar is None:
            return resolution.until
        running = calendar.at(wall)
        return resolution.until if running is None else min(resolution.until, running.end)

    def _prepare(self, exchange: Exchange, kind: Kind, reply: Reply, again: Again) -> None:
        scope, now = exchange.scope, self._monotonic()
        until = reply.fresh_until if again.boundary == inf else min(reply.fresh_until, now + SHOWN_S)
        key = (scope["raw_path"], scope["query_string"])
        if until <= now or len(key[0]) + len(key[1]) > _KEPT_TARGET_BYTES or not params.knows_all(kind, key[1]):
            return
        tally = self._tally
        prepared = Prepared(
            representation=again.representation,
            until=until,
            boundary=None if again.boundary == inf else again.boundary,
            route=kind,
            outcome=reply.outcome,
            reads=tally.reads[kind, reply.outcome],
            durations=tally.durations[kind],
            found=tally.responses(kind, 200),
            not_modified=tally.responses(kind, 304),
        )
        self._hot.put(key, prepared, now)

    def _answer_catalogue(self, exchange: Exchange) -> Answer:
        wall = self._wall()
        common = self._responses.catalogue(self._catalogue.etag, self._boards.boundary(wall), wall)
        return Representation(self._catalogue, common, self._codings).pick(exchange.scope["headers"])


class Again(NamedTuple):
    """A representation, and the wall instant at which its request comes to mean something else."""

    representation: Representation
    boundary: float


def _member_query(route: paths.Route, target: Target, member: bytes, asked: Params) -> Query:
    if route == "member":
        return Query("member", target, members=(member,))
    if route == "neighbors":
        return Query("neighbors", target, members=(member,), above=asked.above, below=asked.below)
    return Query("members", target, members=asked.members)


def _catalogue_body(boards: tuple[Board, ...]) -> bytes:
    """Encode the configured boards, families by their pattern, never a key."""
    listed = [
        {
            "leaderboard": board.name,
            "order": board.order,
            "ties": board.ties,
            "period": "none" if board.calendar is None else board.calendar.kind,
        }
        for board in boards
    ]
    return json.dumps({"leaderboards": listed}, ensure_ascii=False, separators=(",", ":")).encode()
