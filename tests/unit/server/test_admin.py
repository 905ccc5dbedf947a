"""The admin listener: three pages, whatever is asked, and the readiness of several workers as one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.readpath import Readiness
from gateway.server import admin
from gateway.server.admin import AdminProtocol, Page, document, readyz


def worker(
    *, ready: bool = True, redis_up: bool = True, fresh: int = 2, last_known: int = 0, missing: int = 0
) -> Readiness:
    return Readiness(ready=ready, redis_up=redis_up, fresh=fresh, last_known=last_known, missing=missing)


@pytest.mark.parametrize(
    ("found", "draining", "status", "code"),
    [
        ([worker(), worker()], False, "ready", 200),
        ([worker()], False, "degraded", 200),
        ([worker(), worker(ready=False)], False, "degraded", 200),
        ([worker(), worker(redis_up=False)], False, "degraded", 200),
        ([worker(), worker(last_known=1)], False, "degraded", 200),
        ([worker(ready=False), worker(ready=False)], False, "not_ready", 503),
        ([], False, "not_ready", 503),
        ([worker(), worker()], True, "not_ready", 503),
    ],
)
def test_readiness_of_all_is_what_the_worst_can_answer(
    found: list[Readiness], draining: bool, status: str, code: int
) -> None:
    page = readyz(found, 2, draining=draining)
    assert (page.status, json.loads(page.body)["status"]) == (code, status)


def test_readiness_says_how_many_workers_and_boards() -> None:
    page = readyz([worker(fresh=2), worker(fresh=1, missing=1, ready=False, redis_up=False)], 3, draining=False)
    assert json.loads(page.body) == {
        "status": "degraded",
        "redis": "up",
        "leaderboards": {"fresh": 1, "last_known": 0, "missing": 1},
        "workers": {"configured": 3, "serving": 2, "ready": 1},
        "draining": False,
    }


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def echo(accept: str) -> Page:
        return Page(200, "text/plain", accept.encode())

    async def livez(_: str) -> Page:
        return document(200, {"status": "ok"})

    pages = {"/echo": echo, "/livez": livez}
    server = await asyncio.get_running_loop().create_server(lambda: AdminProtocol(pages), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def exchange(port: int, *requests: bytes) -> bytes:
    """Send each request once the one before was answered; return all that came until the other side closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    for request in requests:
        writer.write(request)
        if request is not requests[-1]:
            received += await reader.readuntil(b"\r\n\r\n")
    try:
        received += await reader.read()
    except ConnectionError:
        received += b"reset"
    writer.close()
    return received


LAST = b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "first_line", "says"),
    [
        (b"GET /livez HTTP/1.1\r\n", b"HTTP/1.1 200 OK", b'{"status": "ok"}'),
        (b"GET /livez?x=1 HTTP/1.1\r\n", b"HTTP/1.1 200 OK", b'{"status": "ok"}'),
        (b"GET /echo HTTP/1.1\r\nAccept: text/x\r\n", b"HTTP/1.1 200 OK", b"text/x"),
        (b"GET /v1/leaderboards HTTP/1.1\r\n", b"HTTP/1.1 404 Not Found", b"There are /echo, /livez."),
        (b"GET //[ HTTP/1.1\r\n", b"HTTP/1.1 404 Not Found", b"There are /echo, /livez."),
        (b"POST /livez HTTP/1.1\r\nContent-Length: 2\r\n", b"HTTP/1.1 405 Method Not Allowed", b"allow: GET, HEAD\r\n"),
    ],
)
async def test_each_page_is_answered_and_nothing_else(
    port: int, request_: bytes, first_line: bytes, says: bytes
) -> None:
    answer = await exchange(port, request_ + LAST + (b"{}" if b"POST" in request_ else b""))
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert head.startswith(first_line)
    assert b"cache-control: no-store" in head
    assert says in answer


async def test_head_is_get_without_a_body_and_connections_are_kept(port: int) -> None:
    head = b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = await exchange(port, head, head, b"GET /livez HTTP/1.1\r\n" + LAST)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"content-length: 16\r\n") == 3
    assert answer.count(b'{"status": "ok"}') == 1
    assert answer.count(b"connection: keep-alive") == 2


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_ends_the_connection(port: int, request_: bytes) -> None:
    assert await exchange(port, request_) in {b"reset", b""} or request_.startswith(
        b"GET /livez HTTP/1.1\r\nConnection"
    )


async def test_requests_that_come_at_once_are_not_taken_for_one(port: int) -> None:
    assert await exchange(port, b"GET /livez HTTP/1.1\r\n\r\n" * 3) in {b"reset", b""}


async def test_a_connection_that_asks_nothing_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "IDLE_S", 0.01)
    assert await exchange(port, b"GET /livez HT") in {b"reset", b""}


async def test_a_client_that_leaves_ends_what_was_being_answered() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: str) -> Page:
        begun.set()
        try:
            await asyncio.Event().wait()
            return document(200, {})
        finally:
            ended.set()

    pages: dict[str, Any] = {"/slow": slow}
    server = await asyncio.get_running_loop().create_server(lambda: AdminProtocol(pages), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await begun.wait()
    writer.close()
    await asyncio.wait_for(ended.wait(), 30)
    server.close()
