"""The demo's page and what it asks of the demo, around the gateway's own ASGI application.

Knows: the page, its three routes, how polls of the top are told from other requests.
Must not know: how the gateway answers, how Redis is stopped.

Everything that is not under /demo passes through untouched.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
from collections import deque
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.clock import Clock, SystemClock
from gateway.demo.control import Order, State, send

LAST_POLLS = 1000
"""The page says what so many polls cost."""

_FORWARDED = {"forwarded", "x-forwarded-for", "x-real-ip", "via"}
_NO_STORE = {"Cache-Control": "no-store"}


class Inner(Protocol):
    """The gateway's application, as the server uses it."""

    @property
    def refuse(self) -> Callable[..., Any]:
        """Return the function that answers what the parser refused."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, reply: Send, /) -> None:
        """Answer one request."""
        ...


class DemoApp:
    """``inner`` with a page beside it. ``redis_reads`` tells how many reads the gateway has sent to Redis."""

    def __init__(
        self, inner: Inner, *, redis_reads: Callable[[], int], control: Path, clock: Clock | None = None
    ) -> None:
        self._inner = inner
        self.refuse = inner.refuse
        self._redis_reads = redis_reads
        self._control = control
        self._clock = clock or SystemClock()
        self._page = _page()
        self._polls = 0
        self._reads_before: deque[int] = deque(maxlen=LAST_POLLS)
        """For each of the last polls, the reads counted when it came."""

    async def __call__(self, scope: Scope, receive: Receive, reply: Send) -> None:
        """Answer /demo; hand everything else, counted if it polls a top, to the gateway."""
        path = scope.get("path", "") if scope["type"] == "http" else ""
        if path == "/demo" or path.startswith("/demo/"):
            response = await self._demo(path, Request(scope, receive))
            await response(scope, receive, reply)
            return
        if path.startswith("/v1/") and path.endswith("/top"):
            self._polls += 1
            self._reads_before.append(self._redis_reads())
        await self._inner(scope, receive, reply)

    async def _demo(self, path: str, request: Request) -> Response:
        if path == "/demo" and request.method in ("GET", "HEAD"):
            return self._page
        if path == "/demo/stats" and request.method == "GET":
            return _json(200, await self._stats(request))
        if path == "/demo/control" and request.method == "POST":
            return await self._obey(request)
        return _json(404, {"detail": "The demo has GET /demo, GET /demo/stats and POST /demo/control."})

    async def _stats(self, request: Request) -> dict[str, Any]:
        reads, before = self._redis_reads(), self._reads_before
        return {
            "now_ms": round(self._clock.wall() * 1000),
            "polls": self._polls,
            "redis_reads": reads,
            "last": {"polls": len(before), "redis_reads": reads - before[0] if before else 0},
            "state": await self._state({}),
            "controls": _from_this_machine(request),
        }

    async def _state(self, order: Order) -> State | None:
        try:
            return await send(self._control, order)
        except OSError:
            return None

    async def _obey(self, request: Request) -> Response:
        if not _from_this_machine(request) or request.headers.get("content-type") != "application/json":
            return _json(403, {"detail": "The demo's switches are for pages of this machine only."})
        order = parse_order(await request.body())
        if order is None:
            detail = 'An order is {"redis": "start" or "stop"}, {"writer": true or false} or {"crowd": 0 to 1000}.'
            return _json(400, {"detail": detail})
        state = await self._state(order)
        return _json(200 if state else 503, {"state": state})


def parse_order(body: bytes) -> Order | None:
    """Return the order that a page sent, or None if it is not one."""
    checks: dict[str, Callable[[object], bool]] = {
        "redis": lambda value: value in ("start", "stop"),
        "writer": lambda value: isinstance(value, bool),
        "crowd": lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000,
    }
    try:
        given = json.loads(body)
    except ValueError:
        return None
    if not isinstance(given, dict) or not given:
        return None
    return cast("Order", given) if all(key in checks and checks[key](value) for key, value in given.items()) else None


def _page() -> Response:
    """Return the page, with the policy that lets it run its own script and style, and nothing else."""
    page = files("gateway.demo").joinpath("page.html").read_text("utf-8")
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; script-src {_hash_of(page, 'script')}; style-src {_hash_of(page, 'style')}"
    )
    headers = _NO_STORE | {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return Response(page, media_type="text/html", headers=headers)


def _hash_of(page: str, tag: str) -> str:
    [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _from_this_machine(request: Request) -> bool:
    """Whether the request comes from this machine, by a name of this machine, and from a page of the demo itself.

    The last two keep other sites' pages out: a browser here would carry their requests, and a name of theirs may
    point to 127.0.0.1.
    """
    if request.client is None or not _is_loopback(request.client.host) or _FORWARDED & set(request.headers.keys()):
        return False
    host = request.headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return _is_loopback(name) and request.headers.get("origin", f"http://{host}") == f"http://{host}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _json(status: int, content: object) -> Response:
    return JSONResponse(content, status, headers=_NO_STORE)
