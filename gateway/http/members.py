"""Members: the short way of the reads that no cache can help with.

Knows: plain GETs about one member of a leaderboard that was asked for before.
Must not know: anything that is not plain; all else goes the long way, which checks the same things in the same order.

Every member read that a client makes passes here, and most of its cost is ours rather than Redis's: one function
from the path to the sent answer, where the long way takes a dozen. What fails is answered by the long way's means.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Literal

from gateway.clock import Clock
from gateway.errors import RequestError
from gateway.http import ids, params
from gateway.http.answers import Answer, Scope, Send, head_of, whole_of
from gateway.http.exchange import Exchange, has_left
from gateway.http.leaderboards import Leaderboards, Reads
from gateway.http.responses import Responses
from gateway.http.tally import CLIENT_CLOSED, Tally
from gateway.jsontext import rfc3339
from gateway.model import TOP_LIMIT, Kind, Outcome, Query

_PLAIN = re.compile(
    rb"/v1/leaderboards/([!-$&-.0-~]+)/members/((?!\.{1,2}(?:/|\Z))[!-$&-.0-~]{1,256})(?:/(neighbors))?"
)
"""Printable ASCII but ``%`` and ``/``: segments that decode to themselves and are valid ids."""

_QUERY_LIMIT_BYTES = 256
_KINDS: tuple[Kind, ...] = ("member", "neighbors")

Failed = Callable[[Exchange, BaseException], Awaitable[None]]
"""Answers what a read ended in instead of a reply."""


class Members:
    """Answer plain member reads; the parts are the long way's own."""

    def __init__(
        self,
        *,
        leaderboards: Leaderboards,
        reads: Reads,
        responses: Responses,
        tally: Tally,
        clock: Clock,
        random_bits: Callable[[int], int],
        failed: Failed,
    ) -> None:
        self._resolution_of = leaderboards.resolution_of
        self._reads = reads
        fixed = head_of(200, responses.member_fields).replace(b"%", b"%%")
        self._head = fixed + b"leaderboard-as-of: %b\r\nx-request-id: %b\r\ncontent-length: %d\r\n"
        self._responses = responses
        self._tally = tally
        self._counted = {kind: (tally.durations[kind], tally.responses(kind, 200)) for kind in _KINDS}
        self._monotonic = clock.monotonic
        self._bits = random_bits
        self._failed = failed

    def query_of(self, scope: Scope) -> Query | None:
        """Return the query of a plain GET, None for all else, errors included."""
        match = _PLAIN.fullmatch(scope["raw_path"])
        if match is None or scope["method"] != "GET":
            return None
        segment, member, neighbors = match.groups()
        known = self._resolution_of(segment)
        query_string = scope["query_string"]
        if known is None or len(query_string) > _QUERY_LIMIT_BYTES:
            return None
        kind: Literal["member", "neighbors"] = "member" if neighbors is None else "neighbors"
        if not query_string:
            return Query(kind, known.target, 1, TOP_LIMIT, (member,))
        try:
            asked = params.parse(kind, query_string)
        except RequestError:
            return None
        if asked.period is not None:
            return None
        return Query(kind, known.target, 1, TOP_LIMIT, (member,), asked.above, asked.below)

    async def answer(self, scope: Scope, query: Query, send: Send, started: float) -> Outcome | None:
        """Read, send, count; return how the read ended, None if the long way's means had to answer."""
        kind = query.kind
        ids.current.set(scope)
        request_id = ids.request_id(scope, self._bits)
        try:
            reply = await self._reads.read(query)
            body = reply.body
            assert isinstance(body, bytes)  # noqa: S101 - the read path's promise
            as_of = rfc3339(reply.as_of)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - becomes an answer where all errors do
            await self._fail(Exchange(scope, send, started, self._bits), kind, error)
            return None
        durations, answered = self._counted[kind]
        self._tally.reads[kind, reply.outcome][0] += 1
        durations.observe(self._monotonic() - started)
        whole = None if reply.stale else whole_of(scope)
        if whole is not None and whole(self._head % (as_of, request_id, len(body)), body):
            there = True
        else:
            there = await _send(Answer(200, self._responses.uncached(reply, request_id), body), scope, send)
        (answered if there else self._tally.responses(kind, CLIENT_CLOSED))[0] += 1
        return reply.outcome

    async def _fail(self, exchange: Exchange, kind: Kind, error: BaseException) -> None:
        exchange.label = kind
        exchange.outcome = self._tally.failed(kind, error)
        self._tally.durations[kind].observe(self._monotonic() - exchange.started)
        await self._failed(exchange, error)


async def _send(answer: Answer, scope: Scope, send: Send) -> bool:
    """Send an answer as messages; return whether somebody was there to take it."""
    there = not has_left(scope)
    try:
        await send(answer.start)
        await send(answer.body)
    except OSError:  # how a server may say that the client has left (ASGI 2.4)
        return False
    return there
