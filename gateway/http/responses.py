"""Responses: which header fields each kind of answer has, but for those of its content.

Knows: caching policy (cdn), the gateway's own fields.
Must not know: ASGI, routing, how a body was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isinf

from cdn import policy
from cdn.dialects import Dialect
from cdn.policy import Lives
from cdn.status import Ended, cache_status
from cdn.tags import tags_of
from gateway.boards import Resolution
from gateway.http.answers import ALLOW, CONTENT, CORS, NO_RANGES, PREFLIGHT, Answer, Headers
from gateway.http.problems import MEDIA_TYPE, Problem
from gateway.jsontext import rfc3339
from gateway.model import Board
from gateway.readpath import Reply

SHOWN_S = 1.0
"""How long an answer may be given again when a boundary is near: its lifetimes count from the last time."""


class Responses:
    """Build header lists. ``dialects`` are the edges that get fields of their own."""

    def __init__(self, boards: Sequence[Board], dialects: tuple[Dialect, ...] = ()) -> None:
        self._lives = {board.name: _lives(board, dialects) for board in boards}
        # Not those of boards that nobody may keep: that they exist is no secret of the moment.
        kept = [self._lives[board.name] for board in boards if board.cache_top]
        self._catalogue = policy.shortest(kept) if kept else Lives(dialects=dialects)
        self._uncached = policy.uncached(dialects)
        self.member_fields: Headers = [*CONTENT, *CORS, *self._uncached]
        """What every answer has that nobody keeps, but for its length, its id and its instant."""

    def snapshot(self, reply: Reply, etag: bytes, resolution: Resolution, boundary: float, wall: float) -> Headers:
        """Return what the 200 and the 304 of a top, ranks or board have in common.

        ``boundary``: the wall instant that no lifetime may reach past, infinite for none.
        """
        board = resolution.target.board
        lives, until = self._lives[board.name], _rest(boundary, wall)
        tags = tags_of(resolution.target.leaderboard, resolution.target.label)
        if reply.stale:
            caching = policy.stale(lives, tags=tags, until_boundary_s=until)
        elif reply.short_lived:
            caching = policy.short_lived(lives, tags=tags, until_boundary_s=until)
        elif reply.final:
            immutable = board.finished == "immutable"
            caching = policy.finished(lives, tags=tags, immutable=immutable, until_boundary_s=until)
        else:
            caching = policy.fresh(lives, tags=tags, until_boundary_s=until)
        return [*caching, (b"etag", etag), _cache_status(reply), *_as_of(reply), *CORS]

    def catalogue(self, etag: bytes, boundary: float, wall: float) -> Headers:
        """Return what the 200 and the 304 of the catalogue have in common."""
        caching = policy.fresh(self._catalogue, tags=tags_of(None), until_boundary_s=_rest(boundary, wall))
        status = (b"cache-status", cache_status("hit"))
        # What it says was read at the start, and holds now.
        return [*caching, (b"etag", etag), status, (b"leaderboard-as-of", rfc3339(wall)), *CORS]

    def page(self, etag: bytes) -> Headers:
        """Return what the 200 and the 304 of a page that never changes have in common."""
        return [*policy.fresh(self._catalogue), (b"etag", etag), *CORS]

    def uncached(self, reply: Reply, request_id: bytes) -> Headers:
        """Return all fields of a member, neighbors or members answer but its length."""
        if reply.stale:
            return [*self.member_fields, *_as_of(reply), _cache_status(reply), (b"x-request-id", request_id)]
        return [*self.member_fields, (b"leaderboard-as-of", rfc3339(reply.as_of)), (b"x-request-id", request_id)]

    def uncached_snapshot(self, reply: Reply, request_id: bytes) -> Headers:
        """Return the fields of a top that nobody may keep, since its board is read from the primary."""
        return [*self._uncached, policy.VARY, *_as_of(reply), *CORS, (b"x-request-id", request_id)]

    def own(self, request_id: bytes, *, retry_after_s: int | None = None) -> Headers:
        """Return the fields of an answer about the gateway itself (health) but its length."""
        retry = [] if retry_after_s is None else [(b"retry-after", b"%d" % retry_after_s)]
        return [*self.member_fields, *retry, (b"x-request-id", request_id)]

    def options(self, request_id: bytes, *, preflight: bool) -> Answer:
        """Return the answer to OPTIONS; a browser's preflight is told more, and only it (Fetch §3.3.3)."""
        fields = [ALLOW, *(PREFLIGHT if preflight else CORS), *self._uncached, (b"x-request-id", request_id)]
        return Answer(204, fields)

    def problem(self, found: Problem, request_id: bytes, *, cacheable: bool = False) -> Answer:
        """Return a problem's answer; ``cacheable`` where caches may keep that there is no such leaderboard."""
        fields: Headers = [(b"content-type", MEDIA_TYPE), NO_RANGES, *CORS]
        if cacheable:
            fields += policy.board_not_found()
        else:
            fields += [*self._uncached, (b"x-request-id", request_id)]
        if found.status == 405:
            fields.append(ALLOW)
        if found.retry_after_s is not None:
            fields.append((b"retry-after", b"%d" % found.retry_after_s))
        if found.as_of is not None:
            fields.append((b"leaderboard-as-of", rfc3339(found.as_of)))
        if found.stale_age_s is not None:
            status = cache_status("stale", stored=False, age_s=found.stale_age_s)
            fields += [_stale(found.stale_age_s), (b"cache-status", status)]
        return Answer(found.status, fields, found.body)


def _cache_status(reply: Reply) -> tuple[bytes, bytes]:
    ended: Ended = "miss" if reply.outcome == "failed" else reply.outcome
    return b"cache-status", cache_status(ended, stored=reply.stored, age_s=reply.age_s)


def _as_of(reply: Reply) -> Headers:
    as_of = (b"leaderboard-as-of", rfc3339(reply.as_of))
    return [as_of, _stale(reply.age_s)] if reply.stale else [as_of]


def _stale(age_s: float) -> tuple[bytes, bytes]:
    return b"leaderboard-stale", b"%d" % max(0, floor(age_s))


def _rest(boundary: float, wall: float) -> int | None:
    """Return whole seconds to the boundary, less those for which the answer may be given again."""
    return None if isinf(boundary) else max(0, floor(boundary - wall - SHOWN_S))


def _lives(board: Board, dialects: tuple[Dialect, ...]) -> Lives:
    return Lives(
        client_ttl_s=board.client_ttl_s,
        edge_ttl_s=board.edge_ttl_s,
        stale_while_revalidate_s=board.stale_while_revalidate_s,
        stale_if_error_s=board.stale_if_error_s,
        dialects=dialects,
    )
