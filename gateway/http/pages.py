"""Pages: what the gateway says of itself: health, its description, and where to go from here.

Knows: the paths beside /v1, readiness, the method rules.
Must not know: how readiness is found, how leaderboards are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.routing import Route, Router

from gateway import __version__
from gateway.encode import rendering_of
from gateway.errors import NotFound
from gateway.http.answers import Answer, Receive, Scope, Send
from gateway.http.exchange import Exchange
from gateway.http.hot import Codings, Representation
from gateway.http.openapi import document
from gateway.http.responses import Responses
from gateway.http.tally import Label
from gateway.readpath import Readiness

EXCHANGE = "leaderboard.exchange"
ANSWER = "leaderboard.answer"
"""Under these names the scope carries the exchange through Starlette's router, and the answer back."""

_LINKS = {
    "leaderboards": "/v1/leaderboards",
    "openapi": "/openapi.json",
    "livez": "/livez",
    "readyz": "/readyz",
}


def to_json(value: Mapping[str, Any]) -> bytes:
    """Encode a small document."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Pages:
    """Answer the paths that are not under /v1. ``draining`` tells whether the instance is about to stop."""

    def __init__(
        self, responses: Responses, codings: Codings, readiness: Callable[[], Readiness], draining: Callable[[], bool]
    ) -> None:
        self._responses = responses
        self._readiness = readiness
        self._draining = draining
        self._index = self._constant({"name": "leaderboard-gateway", "version": __version__, "links": _LINKS}, codings)
        self._openapi = self._constant(document(), codings)
        pages = [
            _Page("/", "index", lambda exchange: self._index.pick(exchange.scope["headers"]), responses),
            _Page(
                "/openapi.json", "openapi", lambda exchange: self._openapi.pick(exchange.scope["headers"]), responses
            ),
            _Page("/livez", "livez", self._livez, responses),
            _Page("/readyz", "readyz", self._readyz, responses),
        ]
        # Never a redirect: an edge would keep it, and a client would follow it with its member id in the wrong place.
        self._router = Router([Route(page.path, page) for page in pages], redirect_slashes=False, default=_nowhere)

    async def answer(self, exchange: Exchange, receive: Receive, send: Send) -> Answer:
        """Return a page; raise ``NotFound`` where there is none, ``MethodNotAllowed`` where it is only read."""
        scope = exchange.scope
        scope[EXCHANGE] = exchange
        try:
            await self._router(scope, receive, send)
        finally:
            del scope[EXCHANGE]  # else the two would keep each other until the collector finds them
        answer: Answer = scope[ANSWER]
        return answer

    def _constant(self, value: Mapping[str, Any], codings: Codings) -> Representation:
        rendering = rendering_of(to_json(value))
        return Representation(rendering, self._responses.page(rendering.etag), codings)

    def _livez(self, exchange: Exchange) -> Answer:
        return Answer(200, self._responses.own(exchange.request_id), to_json({"status": "ok"}))

    def _readyz(self, exchange: Exchange) -> Answer:
        found = self._readiness()
        ready = found.ready and not self._draining()
        body = to_json(
            {
                "status": _status(found) if ready else "not_ready",
                "redis": "up" if found.redis_up else "down",
                "leaderboards": {"fresh": found.fresh, "last_known": found.last_known, "missing": found.missing},
            }
        )
        fields = self._responses.own(exchange.request_id, retry_after_s=None if ready else 1)
        return Answer(200 if ready else 503, fields, body)


class _Page:
    """One path as an ASGI application, which is what Starlette's router takes besides functions."""

    def __init__(self, path: str, label: Label, answer: Callable[[Exchange], Answer], responses: Responses) -> None:
        self.path = path
        self._label = label
        self._answer = answer
        self._responses = responses

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        exchange.label = self._label
        if exchange.asks_options():
            scope[ANSWER] = self._responses.options(exchange.request_id, preflight=exchange.is_preflight)
        else:
            scope[ANSWER] = self._answer(exchange)


async def _nowhere(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NotFound


def _status(found: Readiness) -> str:
    return "ready" if found.redis_up and not found.last_known else "degraded"
