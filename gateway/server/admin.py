"""Admin: what operators and their tools ask the parent process, over HTTP, on an address of its own.

Knows: its three pages, how to answer a GET.
Must not know: how the numbers are collected.

It runs in the parent, so that it answers whatever state the workers are in; httptools reads the requests as it does for
the public port.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import httptools

from gateway.readpath import Readiness

IDLE_S = 15.0
"""How long a connection may take to send a request."""
_REQUEST_LIMIT_BYTES = 16 * 1024


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


Answer: TypeAlias = Callable[[str], Awaitable[Page]]
"""Called with the request's ``Accept``."""


def document(status: int, value: object) -> Page:
    """Return a JSON page; from 400 on, a problem document."""
    kind = "application/json" if status < 400 or status == 503 else "application/problem+json"
    return Page(status, kind, json.dumps(value).encode())


def readyz(found: Sequence[Readiness], workers: int, *, draining: bool) -> Page:
    """Return the readiness of all workers together: what can be answered is what the worst of them can."""
    ready = [one for one in found if one.ready]
    well = len(ready) == workers and all(one.redis_up and not one.last_known for one in ready)
    status = "not_ready" if draining or not ready else "ready" if well else "degraded"
    body = {
        "status": status,
        "redis": "up" if any(one.redis_up for one in found) else "down",
        "leaderboards": {
            "fresh": min((one.fresh for one in found), default=0),
            "last_known": max((one.last_known for one in found), default=0),
            "missing": max((one.missing for one in found), default=0),
        },
        "workers": {"configured": workers, "serving": len(found), "ready": len(ready)},
        "draining": draining,
    }
    return document(503 if status == "not_ready" else 200, body)


class AdminProtocol(asyncio.Protocol):
    """One connection: one request at a time, GET and HEAD, nothing kept between them."""

    def __init__(self, pages: Mapping[str, Answer]) -> None:
        self._pages = pages
        self._parser = httptools.HttpRequestParser(self)
        self._answering: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._begin()

    def _begin(self) -> None:
        self._target, self._accept, self._received = b"", "", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, but not for ever."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP connection's
        self._transport = transport
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Forget what was being answered."""
        self._wait(again=False)
        if self._answering is not None:
            self._answering.cancel()

    def _wait(self, *, again: bool = True) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._transport.abort) if again else None

    def data_received(self, data: bytes) -> None:
        """Read on; what is no request, or a second one before the first was answered, ends the connection."""
        self._received += len(data)
        if self._answering is not None or self._received > _REQUEST_LIMIT_BYTES:
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request is whole and answered; nobody here speaks anything else
        except httptools.HttpParserError:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take the one header that matters."""
        if name.lower() == b"accept":
            self._accept = value.decode("latin-1")

    def on_message_complete(self) -> None:
        """Answer, unless this request came with the one that is being answered."""
        if self._answering is not None:
            self._transport.abort()
            return
        self._wait(again=False)
        method = self._parser.get_method()
        keep = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._answering = asyncio.get_running_loop().create_task(self._answer(method, keep=keep), name="admin")

    async def _answer(self, method: bytes, *, keep: bool) -> None:
        page = await self._page(method)
        head = (
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\ncontent-type: {page.content_type}\r\n"
            f"content-length: {len(page.body)}\r\ncache-control: no-store\r\n"
            f"{'allow: GET, HEAD' + chr(13) + chr(10) if page.status == 405 else ''}"
            f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if method == b"HEAD" else page.body))
        self._answering = None
        self._begin()
        if keep:
            self._wait()
        else:
            self._transport.close()

    async def _page(self, method: bytes) -> Page:
        if method not in (b"GET", b"HEAD"):
            return document(405, {"title": "Method not allowed", "status": 405, "code": "method_not_allowed"})
        answer = self._pages.get(_path(self._target.decode("latin-1")))
        if answer is None:
            detail = f"There are {', '.join(self._pages)}."
            return document(404, {"title": "Not found", "status": 404, "code": "not_found", "detail": detail})
        return await answer(self._accept)


def _path(target: str) -> str:
    """Return a target's path; a host that is none (``//[``) has none."""
    try:
        return urlsplit(target).path
    except ValueError:
        return ""
