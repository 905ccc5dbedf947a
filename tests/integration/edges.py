"""What tests of edges need: an origin that counts and can misbehave, crowds of clients, and raw requests.

Knows: HTTP/1.1, the caching policy whose fields the origin sends.
Must not know: any edge.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import uvicorn

from cdn import policy
from cdn.dialects import Headers
from cdn.policy import Lives
from cdn.tags import tags_of
from tests.servers import eventually, free_port

BODY = b'{"leaderboard":"downloads","entries":[' + b'{"rank":1,"member":"boto3","score":1}' * 40 + b"]}"
HEALTH = frozenset({"/livez", "/readyz"})


def _open() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


class Seen(NamedTuple):
    """One request as it reached the origin: the target byte for byte."""

    method: str
    target: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float = 0.0
    raw: bytes = b""

    @property
    def etag(self) -> str:
        """The validator."""
        return self.headers["etag"]


@dataclass
class Origin:
    """A gateway without Redis, in a thread: ``state`` says how it feels, ``seen`` what it was asked.

    States: ``fresh``, ``stale`` (200, marked), ``error`` (503), ``down`` (nothing listens). While ``gate`` is not set,
    only health checks are answered.
    """

    lives: Lives
    """Of its answers; they may change."""
    state: str = "fresh"
    delay_s: float = 0.0
    version: int = 1
    gate: threading.Event = field(default_factory=_open)
    overrides: dict[str, tuple[int, Headers]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    port: int = field(default_factory=free_port)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, and wait until it is so."""
        config = uvicorn.Config(
            self.app,
            host="127.0.0.1",
            port=self.port,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            date_header=True,
            server_header=False,
            timeout_keep_alive=75,
            http="httptools",
            loop="asyncio",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        server = self._server
        eventually(lambda: server.started, what="the origin listens")

    def stop(self) -> None:
        """Close everything: connections are refused from now on."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(30)
        self._server = self._thread = None

    def reset(self) -> None:
        """Forget what was asked, and feel well."""
        self.seen.clear()
        self.overrides.clear()
        self.state, self.delay_s, self.version = "fresh", 0.0, 1
        self.gate.set()

    @property
    def last(self) -> Seen:
        """The last request, health checks aside."""
        return next(seen for seen in reversed(self.seen) if seen.target not in HEALTH)

    def count(self, prefix: str = "") -> int:
        """Return how many requests began with this target, health checks aside."""
        return sum(seen.target.startswith(prefix) for seen in list(self.seen) if seen.target not in HEALTH)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as the gateway would, in the state that the test chose."""
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        fields = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self.seen.append(Seen(scope["method"], target, fields))
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        while not self.gate.is_set() and target not in HEALTH:
            await asyncio.sleep(0.005)
        status, headers, body = self._answer(target, fields.get("accept-encoding", ""))
        headers = [*headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, target: str, coding: str) -> tuple[int, Headers, bytes]:
        path = target.partition("?")[0]
        if path in self.overrides:
            status, headers = self.overrides[path]
            return status, headers, b'{"code":"as_told"}'
        if path in HEALTH:
            well = self.state != "error" or path == "/livez"
            return (200 if well else 503), policy.uncached(), b"{}"
        if self.state == "error":
            return (
                503,
                [*policy.uncached(), (b"retry-after", b"1"), (b"x-request-id", b"of-one-client")],
                b'{"code":"x"}',
            )
        if "/members" in path:
            return 200, policy.uncached(), BODY
        kind = policy.stale if self.state == "stale" else policy.fresh
        body = BODY.replace(b'"score":1', b'"score":%d' % self.version)
        headers = [
            *kind(self.lives, tags=tags_of("downloads")),
            (b"etag", b'W/"v%d-%s"' % (self.version, self.state.encode())),
            (b"cache-status", b"leaderboard-gateway; hit"),
        ]
        if coding in {"gzip", "br"}:
            headers.append((b"x-form", coding.encode()))
        return 200, headers, body


def exchange(port: int, request: bytes, *, timeout_s: float = 30.0) -> Reply:
    """Send these bytes and return the answer to them; the request should ask for the connection's end."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request)
        data = b""
        while chunk := connection.recv(65_536):
            data += chunk
    return parsed(data, time.monotonic() - began)


def get(port: int, target: str, headers: Mapping[str, str] | None = None, *, method: str = "GET") -> Reply:
    """Ask for exactly this target, once."""
    lines = [f"{method} {target} HTTP/1.1", "Host: edge", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return exchange(port, "\r\n".join([*lines, "", ""]).encode("latin-1"))


def parsed(data: bytes, seconds: float = 0.0) -> Reply:
    """Take an answer apart; chunks are joined."""
    head, _, body = data.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = f"{fields[name.lower()]}, {value.strip()}" if name.lower() in fields else value.strip()
    if fields.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Reply(int(status_line.split()[1]), fields, body, seconds, data)


def _joined(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + rest[:length], rest[length + 2 :]
    return whole


def crowd(port: int, target: str, clients: int, *, rounds: int = 1, pause_s: float = 0.0) -> list[Reply]:
    """Let that many clients ask at the same time, each on a connection of its own, ``rounds`` times."""
    return asyncio.run(_crowd(port, target, clients, rounds, pause_s))


async def _crowd(port: int, target: str, clients: int, rounds: int, pause_s: float) -> list[Reply]:
    request = f"GET {target} HTTP/1.1\r\nHost: edge\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[Reply]:
        replies = []
        for _ in range(rounds):
            began = time.monotonic()
            writer.write(request)
            replies.append(await _read(reader, began))
            if pause_s:
                await asyncio.sleep(pause_s)
        return replies

    try:
        lists = await asyncio.gather(*(client(*connection) for connection in connections))
    finally:
        for _, writer in connections:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)
    return [reply for replies in lists for reply in replies]


def pipelined(port: int, target: str, count: int, headers: Mapping[str, str] | None = None) -> list[Reply]:
    """Ask that often in one go on one connection: as fast as the server answers, however slow this process is."""
    return asyncio.run(_pipelined(port, target, count, headers or {}))


async def _pipelined(port: int, target: str, count: int, headers: Mapping[str, str]) -> list[Reply]:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: edge\r\n{fields}\r\n".encode() * count)
        return [await _read(reader, time.monotonic()) for _ in range(count)]
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def _read(reader: asyncio.StreamReader, began: float) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    reply = parsed(head)
    if reply.headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(reply.headers.get("content-length", 0)))
    return reply._replace(body=body, seconds=time.monotonic() - began)


def until(moment: Callable[[], bool], what: str) -> None:
    """Wait for something that must happen."""
    eventually(moment, what=what)
