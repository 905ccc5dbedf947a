"""HTTP on real sockets: what the parser refuses, HEAD, pipelining, half-sent requests, clients that hang up.

The application stands over a fake read path, behind the server and the protocol class that ``serve`` uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from gateway import errors
from gateway.clock import SystemClock
from gateway.http import protocol
from gateway.http.protocol import GatewayProtocol
from gateway.model import Query
from gateway.readpath import Reply
from gateway.server import serving as serving_module
from gateway.server.serving import Serving
from tests.httplint import lint
from tests.unit.http.driver import Site

PATIENCE_S = 30.0
"""For what must happen: no promise, only the end of all patience."""

BOARD = "/v1/leaderboards/downloads"
TOP = f"{BOARD}/top"
END = b" HTTP/1.1\r\nHost: gateway.example\r\n\r\n"


@dataclass
class Answer:
    """One answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes

    @property
    def code(self) -> str:
        """The code of a problem that says all that a problem has to."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.headers["cache-control"] == "no-store"
        assert int(self.headers["content-length"]) == len(self.body)
        assert self.headers["access-control-allow-origin"] == "*"
        assert self.headers["x-request-id"]
        assert json.loads(self.body)["status"] == self.status
        return str(json.loads(self.body)["code"])


class Client:
    """A connection that sends bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *pieces: bytes) -> None:
        """Send, each piece as a write of its own."""
        for piece in pieces:
            self.writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, *, head: bool = False) -> Answer:
        """Read one answer."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        top, *lines = raw.decode("latin-1").strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        status = int(top.split()[1])
        bodyless = head or status in (204, 304)
        body = b"" if bodyless else await self.reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body, raw)

    def reset(self) -> None:
        """Break the connection off: a close alone looks like a client that has no more to ask."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def ended(self) -> bytes:
        """Read until the server closes; nothing more may come."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)


@dataclass
class Wire:
    """A served site."""

    site: Site
    serving: Serving
    port: int

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Open a connection, and close it in the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def ask(self, *pieces: bytes) -> Answer:
        """Ask once on a connection of its own."""
        async with self.client() as client:
            await client.send(*pieces)
            return await client.answer()


@contextlib.asynccontextmanager
async def serving_site() -> AsyncIterator[Wire]:
    """Serve a site, and stop in the end."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        site = Site()
        serving = Serving(site.app, GatewayProtocol, SystemClock())
        await serving.start([listener])
        yield Wire(site, serving, listener.getsockname()[1])
        await serving.finish(1.0)


@pytest.fixture
def time_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server throw away what a refused client still sends for longer than the machine ever stands still."""
    monkeypatch.setattr(protocol, "LINGER_S", PATIENCE_S)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with serving_site() as served:
        yield served


def get(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"{method} {target} HTTP/1.1\r\nHost: gateway.example\r\n{lines}\r\n".encode()


class Gate:
    """A read path that waits until it is opened."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.opened = asyncio.Event()
        self.arrived = asyncio.Semaphore(0)
        site.reads.read = self.read  # type: ignore[method-assign]

    async def read(self, query: Query) -> Reply:
        """Wait, then answer."""
        self.arrived.release()
        await self.opened.wait()
        return self._site.reads.plain(query)


async def test_d4_two_heads_on_one_connection_have_no_bodies_and_leave_it_usable(wire: Wire) -> None:
    async with wire.client() as client:
        for target in (TOP, f"{BOARD}/members/ann", "/livez", "/v1/leaderboards/none/top"):
            for accept in ("identity", "gzip"):
                await client.send(get(target, f"Accept-Encoding: {accept}"))
                full = await client.answer()
                await client.send(get(target, f"Accept-Encoding: {accept}", method="HEAD") * 2)
                for _ in range(2):
                    head = await client.answer(head=True)
                    for name in ("content-length", "etag", "cache-control", "vary", "content-type"):
                        assert head.headers.get(name) == full.headers.get(name)
                    assert head.status == full.status
        await client.send(get("/livez"))
        assert (await client.answer()).body == b'{"status":"ok"}'


async def test_answers_sent_in_one_go_say_what_answers_sent_as_messages_say(wire: Wire) -> None:
    odd = {"date", "connection", "x-request-id"}
    for target, headers in (
        (TOP, ["Accept-Encoding: gzip"]),
        (TOP, ["If-None-Match: *"]),
        (f"{BOARD}/members/ann", ["X-Request-Id: mine"]),
        (f"{BOARD}/members/ann/neighbors?above=1", []),
    ):
        async with wire.client() as client:
            await client.send(get(target, *headers) * 3)
            several = [await client.answer() for _ in range(3)]
            await client.send(get(target, *headers, "Connection: close"))
            messages = await client.answer()
            assert await client.ended() == b""
        for each in several:
            assert (each.status, each.body) == (messages.status, messages.body)
            assert "date" in each.headers
            assert {name: value for name, value in each.headers.items() if name not in odd} == {
                name: value for name, value in messages.headers.items() if name not in odd
            }
            assert ("x-request-id" in each.headers) == ("x-request-id" in messages.headers)


async def test_a_304_has_no_body_and_leaves_the_connection_usable(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get(TOP, "If-None-Match: *") * 2)
        for _ in range(2):
            found = await client.answer()
            assert found.status == 304
            assert not [name for name in found.headers if name.startswith("content-") or name == "transfer-encoding"]
        await client.send(get(TOP, method="OPTIONS"))
        assert (await client.answer()).status == 204


@pytest.mark.parametrize("size", [9_000, 16_000])
async def test_d17_an_id_over_256_bytes_is_400_up_to_16_kib(wire: Wire, size: int) -> None:
    found = await wire.ask(get(f"{BOARD}/members/{'a' * size}"))
    assert (found.status, found.code) == (400, "invalid_member")
    assert wire.site.reads.queries == []


@pytest.mark.parametrize("size", [17_000, 65_400, 65_536, 70_000, 1_000_000])
async def test_d17_a_target_over_16_kib_is_414_whoever_refuses_it(time_to_read: None, wire: Wire, size: int) -> None:
    for _ in range(3):
        found = await wire.ask(get(f"{BOARD}/members/{'a' * size}"))
        assert (found.status, found.code) == (414, "uri_too_long")
    assert wire.site.reads.queries == []


async def test_d17_an_id_of_exactly_256_bytes_arrives_whole(wire: Wire) -> None:
    for member in ("a" * 256, "%F0%9F%98%80" * 64):
        assert (await wire.ask(get(f"{BOARD}/members/{member}"))).status == 200
    assert [len(query.members[0]) for query in wire.site.reads.queries] == [256, 256]


async def test_a_target_that_dribbles_in_is_refused_where_it_gets_too_long(time_to_read: None, wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(b"GET /", *[b"a" * 1000] * 80)
        found = await client.answer()
        assert (found.status, found.code) == (414, "uri_too_long")
        assert await client.ended() == b""


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        ("GET /v1/leaderboards/downloads/members/é".encode() + END, 400, "invalid_parameter"),
        (b"GET /v1/leaderboards/downloads/members/\xff" + END, 400, "invalid_parameter"),
        (b"GET /v1/leaderboards/downloads/members/a#b" + END, 400, "invalid_parameter"),
        (b"GET /v1/leaderboards/downloads/members/a b" + END, 400, "invalid_parameter"),
        (b"GET /a\x01b" + END, 400, "invalid_parameter"),
        (b"GET nonsense" + END, 400, "invalid_parameter"),
        (b"BREW /" + END, 405, "method_not_allowed"),
        (b"CONNECT example.com:443" + END, 405, "method_not_allowed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_parameter"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_parameter"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/0.9\r\nHost: a\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a b/\\@\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a:b\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: ::1\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: user@a\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: http://a/\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a%2\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.0\r\nHost: \xc3\xa9\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nno colon\r\n\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 200 + b"\r\n", 400, "invalid_parameter"),
        (b"GET /livez HTTP/1.1\r\na: " + b"x" * 1_000_000, 400, "invalid_parameter"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "invalid_parameter"),
    ],
)
async def test_what_the_parser_refuses_is_a_problem_and_the_connections_last_answer(
    time_to_read: None, wire: Wire, request_bytes: bytes, status: int, code: str
) -> None:
    async with wire.client() as client:
        await client.send(request_bytes)
        found = await client.answer()
        assert (found.status, found.code) == (status, code)
        assert found.headers["connection"] == "close"
        assert ("allow" in found.headers) == (status == 405)
        assert lint(found.head + found.body, method=request_bytes.split()[0].decode("latin-1")) == []
        assert await client.ended() == b""
    assert wire.site.count("gateway_responses_total", "refused", str(status)) == 1


async def test_a_refused_head_has_no_body(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get(f"/{'a' * 70_000}", method="HEAD"))
        assert (await client.answer(head=True)).status == 414
        assert await client.ended() == b""


async def test_a_refusal_takes_its_turn_behind_the_requests_before_it(wire: Wire) -> None:
    gate = Gate(wire.site)
    async with wire.client() as client:
        await client.send(get(TOP) + get("/livez") + b"GET /\xff" + END + get("/livez"))
        await gate.arrived.acquire()
        gate.opened.set()
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 400]
        assert await client.ended() == b""


async def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(b"".join(get(f"{TOP}?limit={number}") + get("/livez") for number in range(1, 20)))
        for _ in range(1, 20):
            assert (await client.answer()).headers["cache-status"]
            assert (await client.answer()).body == b'{"status":"ok"}'


async def test_more_pipelined_requests_than_are_lined_up_end_the_connection_after_the_last_answer(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get("/livez") * 500)
        answers = 0
        while True:
            found = await client.answer()
            answers += 1
            if found.headers.get("connection") == "close":
                break
        assert 1 < answers <= protocol.PIPELINE_LIMIT + 2
        assert await client.ended() == b""


async def test_a_get_with_a_body_works_and_the_next_request_is_understood(wire: Wire) -> None:
    async with wire.client() as client:
        for target in (TOP, TOP, f"{BOARD}/members/ann"):
            await client.send(get(target, "Content-Length: 100000"), b"x" * 100_000)
            assert (await client.answer()).status == 200
        await client.send(get("/livez", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n" + get("/livez"))
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]


async def test_a_body_that_cannot_be_read_ends_the_connection_after_the_answer(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get("/livez", "Transfer-Encoding: chunked"))
        assert (await client.answer()).status == 200
        await client.send(b"nonsense\r\n")
        assert await client.ended() == b""
    found = await wire.ask(get("/livez", "Transfer-Encoding: chunked") + b"nonsense\r\n")
    assert (found.status, found.headers["connection"]) == (200, "close")


async def test_trailers_are_no_fields_of_the_request(wire: Wire) -> None:
    chunked = get(TOP, "Transfer-Encoding: chunked") + b"0\r\nIf-None-Match: *\r\n\r\n"
    async with wire.client() as client:
        for _ in range(2):
            await client.send(chunked)
            assert (await client.answer()).status == 200
        await client.send(get(TOP, "If-None-Match: *"))
        assert (await client.answer()).status == 304


@pytest.mark.parametrize("piece", [b"A: b\r\n" * 10_000, b"x" * 60_000])
async def test_a_body_without_end_ends_the_connection(time_to_read: None, wire: Wire, piece: bytes) -> None:
    async with wire.client() as client:
        await client.send(get("/livez", "Transfer-Encoding: chunked") + b"0\r\nB: ")
        assert (await client.answer()).status == 200
        await client.send(*[piece] * 40)
        assert await client.ended() == b""


async def test_long_heads_that_are_pipelined_are_not_taken_for_one(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get(f"/livez?{'a' * 15_000}") * 50)
        assert [(await client.answer()).status for _ in range(50)] == [200] * 50


async def test_a_client_that_waits_for_100_continue_gets_its_answer_and_no_more(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get("/livez", "Expect: 100-continue", "Content-Length: 5"))
        found = await client.answer()
        assert (found.status, found.headers["connection"]) == (200, "close")


@pytest.mark.parametrize("protocol_name", ["websocket", "h2c"])
async def test_an_upgrade_is_answered_as_if_it_had_not_been_asked(wire: Wire, protocol_name: str) -> None:
    asked = get("/livez", "Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol_name}", "HTTP2-Settings: AAM")
    async with wire.client() as client:
        await client.send(asked + b"more")
        found = await client.answer()
        assert (found.status, found.body, found.headers["connection"]) == (200, b'{"status":"ok"}', "close")
        assert await client.ended() == b""


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://gateway.example/livez", 200),
        ("http://gateway.example", 200),
        ("http://gateway.example?x=1", 200),
        ("*", 404),
    ],
)
async def test_absolute_targets_are_read_as_paths(wire: Wire, target: str, status: int) -> None:
    assert (await wire.ask(get(target))).status == status


async def test_options_of_the_whole_server_is_answered(wire: Wire) -> None:
    found = await wire.ask(get("*", method="OPTIONS"))
    assert (found.status, found.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_a_request_that_comes_in_single_bytes_is_understood(wire: Wire) -> None:
    found = await wire.ask(*(bytes([byte]) for byte in get(f"{TOP}?limit=7", "Accept-Encoding: gzip")))
    assert (found.status, found.headers["content-encoding"]) == (200, "gzip")
    assert wire.site.reads.queries[0].last == 7


async def test_a_half_sent_request_is_closed_after_a_while_and_an_idle_connection_too(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with wire.client() as client:
        await client.send(get("/livez"))
        assert (await client.answer()).status == 200
        monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
        await client.send(b"GET /livez HTTP/1.1\r\n")
        assert await client.ended() == b""
    for begun in (b"", b"GET /livez HTTP/1.1\r\nHost:", b"GE"):
        async with wire.client() as client:
            await client.send(begun)
            with contextlib.suppress(ConnectionError):  # where the time was over before anything was sent
                assert await client.ended() == b""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with hardly any patience; asked for in front of ``wire``."""
    monkeypatch.setattr(serving_module, "KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr(protocol, "READER_TIMEOUT_S", 0.2)


@pytest.mark.parametrize("headers", [["Content-Length: 1000"], ["Transfer-Encoding: chunked"], []])
async def test_only_a_request_keeps_a_connection_from_being_idle(
    impatient: None, wire: Wire, headers: list[str]
) -> None:
    piece = b"0" if headers else b"\r\n"
    async with wire.client() as client:
        await client.send(get("/livez", *headers))
        assert (await client.answer()).status == 200
        for _ in range(10):
            await client.send(piece)
            await asyncio.sleep(0.05)
        assert wire.serving.connections == 0


@pytest.mark.parametrize("headers", [[], ["Connection: close"]])
async def test_a_client_that_does_not_read_its_answers_is_cut(impatient: None, wire: Wire, headers: list[str]) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", wire.port))
        client.sendall(get("/openapi.json") * 60 + get("/openapi.json", *headers))
        async with asyncio.timeout(PATIENCE_S):
            while not wire.serving.connections:
                await asyncio.sleep(0.005)
        await gone(wire)


async def test_a_slow_answer_is_not_cut_by_the_time_for_heads(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """That time is long enough for a machine that stands still between the connection and its request."""
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 3.0)
    gate = Gate(wire.site)
    async with wire.client() as client:
        await client.send(get(TOP))
        await gate.arrived.acquire()
        await asyncio.sleep(3.1)
        gate.opened.set()
        assert (await client.answer()).status == 200


async def test_every_host_that_is_one_is_taken_and_one_after_a_good_one_is_looked_at_too(wire: Wire) -> None:
    hosts = [
        "a",
        "",
        "a.example:8080",
        "a:",
        "[::1]:80",
        "[v1.x:y]",
        "my_host",
        "xn--9ca.example",
        "a%20b",
        "127.0.0.1",
        "a \t",
    ]
    async with wire.client() as client:
        for host in (host for host in hosts for _ in range(2)):
            await client.send(f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert (await client.answer()).status == 200
        await client.send(b"GET /livez HTTP/1.1\r\nHost: a/b\r\n\r\n")
        assert (await client.answer()).code == "invalid_parameter"
        assert await client.ended() == b""


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


def on(new_loop: NewLoop, scenario: Callable[[Wire], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a served site, in a loop of this kind."""

    async def run() -> None:
        async with serving_site() as wire:
            await scenario(wire)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


async def gone(wire: Wire) -> None:
    """Wait until no connection is open."""
    async with asyncio.timeout(PATIENCE_S):
        while wire.serving.connections:
            await asyncio.sleep(0.01)


@LOOPS
@pytest.mark.parametrize(
    "target",
    [TOP, f"{BOARD}/members/ann", f"{BOARD}/members/ann/neighbors", f"{BOARD}/ranks?from=101&to=200", "/livez"],
)
def test_a_client_that_has_no_more_to_ask_gets_its_answer_and_the_end(new_loop: NewLoop, target: str) -> None:
    async def scenario(wire: Wire) -> None:
        read = wire.site.reads.read

        async def slowly(query: Query) -> Reply:
            await asyncio.sleep(0.05)
            return await read(query)

        wire.site.reads.read = slowly  # type: ignore[method-assign]
        for _ in range(2):
            async with wire.client() as client:
                await client.send(get(target))
                client.writer.write_eof()
                assert (await client.answer()).status == 200
                assert await client.ended() == b""
                await gone(wire)

    on(new_loop, scenario)


@LOOPS
def test_a_client_that_has_no_more_to_ask_gets_all_that_is_lined_up(new_loop: NewLoop) -> None:
    async def scenario(wire: Wire) -> None:
        for last, status in ((get("/livez"), 200), (b"GET /\xff" + END, 400), (b"GET /livez HTTP/1.1\r\nHo", None)):
            gate = Gate(wire.site)
            async with wire.client() as client:
                await client.send(get(f"{BOARD}/members/ann") + get("/livez") + last)
                client.writer.write_eof()
                await gate.arrived.acquire()
                await asyncio.sleep(0.02)
                gate.opened.set()
                found = [await client.answer() for _ in range(2 if status is None else 3)]
                assert [each.status for each in found] == [200, 200, status][: len(found)]
                assert await client.ended() == b""
                await gone(wire)

    on(new_loop, scenario)


@LOOPS
@pytest.mark.parametrize("asked", [b"", b"GET /livez HTTP/1.1\r\nHost:", get("/livez")])
def test_a_connection_on_which_nothing_is_asked_ends_with_what_the_client_sends(
    new_loop: NewLoop, asked: bytes
) -> None:
    async def scenario(wire: Wire) -> None:
        async with wire.client() as client:
            await client.send(asked)
            if asked.endswith(b"\r\n\r\n"):
                assert (await client.answer()).status == 200
            client.writer.write_eof()
            assert await client.ended() == b""
            await gone(wire)

    on(new_loop, scenario)


@LOOPS
@pytest.mark.parametrize("count", [1, 60])
def test_a_client_that_has_no_more_to_ask_and_does_not_read_is_cut(
    impatient: None, new_loop: NewLoop, count: int
) -> None:
    async def scenario(wire: Wire) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", wire.port))
            client.sendall(get("/openapi.json") * count)
            client.shutdown(socket.SHUT_WR)
            await gone(wire)

    on(new_loop, scenario)


async def test_clients_that_close_while_they_wait_leave_no_trace(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """What they did looks like a client that only has no more to ask, until the answer is sent."""
    gate = Gate(wire.site)
    for number in range(20):
        async with wire.client() as client:
            await client.send(get(f"{TOP}?x={number}" if number % 2 else f"{BOARD}/members/m{number}"))
            await gate.arrived.acquire()
    assert wire.serving.connections == 20
    gate.opened.set()
    await gone(wire)
    assert (await wire.ask(get(TOP))).status == 200
    assert caplog.records == []


async def test_d9_clients_that_hang_up_are_counted_and_leave_no_trace(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(wire.site)
    for number in range(50):
        async with wire.client() as client:
            await client.send(get(f"{TOP}?x={number}" if number % 2 else f"{BOARD}/members/m{number}"))
            await gate.arrived.acquire()
            client.reset()
    await gone(wire)
    gate.opened.set()
    assert (await wire.ask(get(TOP))).status == 200
    assert wire.site.count("gateway_responses_total", "top", "client_closed") == 25
    assert wire.site.count("gateway_responses_total", "member", "client_closed") == 25
    assert not [
        cell
        for labels, cell in wire.site.counters.counters["gateway_responses_total"].cells.items()
        if labels[1] >= "5" and labels[1] != "client_closed"
    ]
    assert caplog.records == []


async def test_d9_clients_that_hang_up_with_requests_lined_up_leave_no_trace(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(wire.site)
    async with wire.client() as client:
        await client.send(get(TOP) + get("/livez") * 5 + b"GET /\xff" + END)
        await gate.arrived.acquire()
    gate.opened.set()  # with requests lined up nothing is read from the socket, so it only shows now that it is closed
    await gone(wire)
    assert (await wire.ask(get("/livez"))).status == 200
    assert caplog.records == []


async def test_d16_a_forwarded_address_is_never_taken_for_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.access")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        serving = Serving(Site(access="on").app, GatewayProtocol, SystemClock())
        await serving.start([listener])
        served = Wire(Site(), serving, listener.getsockname()[1])
        await served.ask(get(TOP, "X-Forwarded-For: 1.2.3.4", "X-Real-IP: 1.2.3.4", "Forwarded: for=1.2.3.4"))
        await served.ask(b"GET /\xff" + END)
        await serving.finish(1.0)
    assert [vars(record)["client"] for record in caplog.records] == ["127.0.0.1", "127.0.0.1"]
    assert [vars(record)["route"] for record in caplog.records] == ["top", "refused"]


async def test_e5_refusals_and_errors_are_kept_by_nobody_and_the_next_request_is_good(wire: Wire) -> None:
    wire.site.reads.error = errors.OriginUnavailable()
    for asked in (get(TOP), get(f"{TOP}?limit=0"), get("/nope"), get(TOP, method="PUT"), get("/" + "a" * 70_000)):
        found = await wire.ask(asked)
        assert found.status >= 400
        assert found.code
    wire.site.reads.error = None
    assert (await wire.ask(get(TOP))).status == 200


async def test_draining_ends_keep_alive_after_the_answer(wire: Wire) -> None:
    async with wire.client() as client:
        await client.send(get(TOP))
        assert "connection" not in (await client.answer()).headers
        wire.site.app.draining = True
        await client.send(get(TOP))
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.ended() == b""
