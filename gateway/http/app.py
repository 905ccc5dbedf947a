"""HttpApp: the ASGI application, and the order in which a request is looked at.

Knows: the hot path, routes, the order of checks, where errors become problems.
Must not know: Redis, freshness, how lifetimes are computed.

1. The hot path: the very same request was answered a moment ago, and the answer still holds.
2. Checks, the first that fails answers: the target's length (414), a path that leads nowhere or cannot be decoded
   (404, 400), the method (405, or OPTIONS), the leaderboard's name (400), the member's id (400), the query (400),
   whether the leaderboard is configured (404), whether the period makes sense (400, 404).
3. The read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.boards import Boards
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.errors import GatewayError, LeaderboardNotFound, OriginUnavailable, UriTooLong
from gateway.http import paths
from gateway.http.access import AccessLog
from gateway.http.answers import Answer, Peer, Receive, Scope, Send, whole_of
from gateway.http.exchange import Exchange
from gateway.http.hot import Codings, HotAnswers, Prepared
from gateway.http.ids import new_id
from gateway.http.leaderboards import Leaderboards, Reads
from gateway.http.members import Members
from gateway.http.pages import Pages
from gateway.http.problems import problem_of
from gateway.http.responses import Responses
from gateway.http.tally import CLIENT_CLOSED, Label, Tally
from gateway.model import Outcome
from gateway.readpath import Readiness

TARGET_LIMIT_BYTES = 16 * 1024
SERVER_WIDE = b"/*"
"""What our server protocol makes of ``OPTIONS *``."""
_MEMBER_ROUTES = frozenset({"member", "neighbors", "members"})


class HttpApp:
    """Answer HTTP requests.

    ``readiness`` says what could be answered now, ``random_bits`` gives that many random bits for request ids.
    Setting ``draining`` makes ``/readyz`` say not ready and every answer its connection's last.
    """

    def __init__(
        self,
        *,
        boards: Boards,
        reads: Reads,
        readiness: Callable[[], Readiness],
        responses: Responses,
        clock: Clock,
        counters: Counters,
        random_bits: Callable[[int], int],
        access: AccessLog,
    ) -> None:
        self._draining = False
        self._monotonic, self._wall = clock.monotonic, clock.wall
        self._random_bits = random_bits
        self._responses = responses
        self._access = access if access.enabled else None
        self._tally = Tally(counters)
        self._hot = HotAnswers()
        self._prepared_for: Callable[[object], Prepared | None] = self._hot.get
        codings = Codings()
        self._pages = Pages(responses, codings, readiness, lambda: self._draining)
        self._leaderboards = Leaderboards(
            boards=boards,
            reads=reads,
            responses=responses,
            clock=clock,
            tally=self._tally,
            codings=codings,
            hot=self._hot,
        )
        self._members = Members(
            leaderboards=self._leaderboards,
            reads=reads,
            responses=responses,
            tally=self._tally,
            clock=clock,
            random_bits=random_bits,
            failed=self._failed,
        )

    @property
    def draining(self) -> bool:
        """Whether the instance is about to stop."""
        return self._draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._draining = value
        # The long way alone knows how to make an answer the connection's last.
        self._prepared_for = _nothing if value else self._hot.get

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3); raises nothing that a request could cause."""
        now = self._monotonic()
        prepared = self._prepared_for((scope.get("raw_path"), scope.get("query_string")))
        if (
            prepared is None
            or now > prepared.until
            or (prepared.boundary is not None and self._wall() >= prepared.boundary)
            or scope["method"] != "GET"
        ):
            if scope["type"] != "http":
                raise NotImplementedError(scope["type"])  # how a server learns that there is no lifespan to wait for
            query = None if self._draining else self._members.query_of(scope)
            if query is None:
                await self._slowly(Exchange(scope, send, now, self._random_bits), receive, send)
                return
            outcome = await self._members.answer(scope, query, send, now)
            if outcome is not None and self._access is not None:
                self._log(scope, query.kind, 200, outcome, now)
            return
        answer = prepared.representation.pick(scope["headers"])
        prepared.reads[0] += 1
        prepared.durations.observe(self._monotonic() - now)
        whole = whole_of(scope)
        if whole is None or not whole(answer.head, answer.content):
            try:
                await send(answer.start)
                await send(answer.body)
            except OSError:  # how a server may say that the client has left (ASGI 2.4)
                self._tally.responses(prepared.route, CLIENT_CLOSED)[0] += 1
                return
        (prepared.found if answer.content else prepared.not_modified)[0] += 1
        if self._access is not None:
            self._log(scope, prepared.route, answer.status, prepared.outcome, now)

    def _log(self, scope: Scope, route: Label, status: int, outcome: Outcome | None, started: float) -> None:
        if self._access is not None and self._access.wants(status):
            seconds = self._monotonic() - started
            self._access.write(scope, route=route, status=status, outcome=outcome, seconds=seconds)

    def refuse(self, error: GatewayError, client: Peer) -> Answer:
        """Return the answer to a request from this peer that did not get past the parser; count it, log it."""
        found = problem_of(error)
        self._tally.responses("refused", found.status)[0] += 1
        unread: Scope = {"client": client, "headers": [], "method": "-", "path": "-", "query_string": b""}
        self._log(unread, "refused", found.status, None, self._monotonic())
        return self._responses.problem(found, new_id(self._random_bits))

    async def _slowly(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        exchange.last = self._draining
        try:
            answer = await self._answer(exchange, receive, send)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the one place where errors become answers
            await self._failed(exchange, error)
            return
        await exchange.reply(answer)
        self._note(exchange)

    async def _failed(self, exchange: Exchange, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            # The server stops and waited long enough. The task ends right here, so nothing else is held up.
            error = OriginUnavailable("The gateway is stopping.")
        kept = isinstance(error, LeaderboardNotFound) and exchange.label not in _MEMBER_ROUTES
        await exchange.reply(self._responses.problem(problem_of(error), exchange.request_id, cacheable=kept))
        self._note(exchange)

    def _note(self, exchange: Exchange) -> None:
        status = CLIENT_CLOSED if exchange.client_is_gone else exchange.status
        self._tally.responses(exchange.label, status)[0] += 1
        self._log(exchange.scope, exchange.label, status, exchange.outcome, exchange.started)

    async def _answer(self, exchange: Exchange, receive: Receive, send: Send) -> Answer:
        raw_path: bytes = exchange.scope["raw_path"]
        check_target(raw_path, exchange.scope["query_string"])
        if raw_path == SERVER_WIDE and exchange.method == "OPTIONS":
            return self._responses.options(exchange.request_id, preflight=exchange.is_preflight)
        if not raw_path.startswith(b"/v1/") and b"%" not in raw_path:
            return await self._pages.answer(exchange, receive, send)
        path = paths.parse(raw_path)
        exchange.label = path.route
        if exchange.asks_options():
            return self._responses.options(exchange.request_id, preflight=exchange.is_preflight)
        return await self._leaderboards.answer(exchange, path)


def _nothing(_key: object) -> None:
    """Find nothing prepared."""


def check_target(raw_path: bytes, query: bytes) -> None:
    """Raise ``UriTooLong`` for a request target over 16 KiB; the question mark counts where there is a query."""
    if len(raw_path) + (len(query) + 1 if query else 0) > TARGET_LIMIT_BYTES:
        raise UriTooLong
