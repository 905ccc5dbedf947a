"""The demo's parts with real processes and sockets: what they do when something does not go its way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.demo import control, embedded, keeper
from gateway.demo.children import Children
from gateway.demo.control import Order, State
from gateway.demo.crowd import CONNECTIONS, Crowd
from gateway.demo.embedded import CannotStart, EmbeddedRedis

pytestmark = pytest.mark.xdist_group("demo")

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
)


def stubborn() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_the_keeper_ends_those_that_live_and_kills_those_that_will_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "STOP_S", 2.0)  # the meek one has twice that, should the machine hold it up
    with stubborn() as deaf, subprocess.Popen(["sleep", "99"]) as meek, subprocess.Popen(["true"]) as gone:
        gone.wait()
        try:
            keeper.end(keeper.follow([f"+{deaf.pid}\n", f"+{meek.pid}\n", f"+{gone.pid}\n"]))
            assert (deaf.wait(60), meek.wait(60)) == (-signal.SIGKILL, -signal.SIGTERM)
        finally:
            deaf.kill()
            meek.kill()


def test_the_keeper_leaves_alone_whom_it_was_told_to_forget() -> None:
    with subprocess.Popen(["sleep", "99"]) as other:
        try:
            assert keeper.follow([f"+{other.pid}\n", f"-{other.pid}\n", f"-{other.pid}\n"]) == []
        finally:
            other.kill()


def test_where_processes_have_no_descriptors_the_keeper_sends_its_signals_by_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with subprocess.Popen(["sleep", "99"]) as meek:
        try:
            keeper.end(keeper.follow([f"+{meek.pid}\n"]))
            assert meek.wait(60) in (-signal.SIGTERM, -signal.SIGKILL)
        finally:
            meek.kill()
    keeper.end(keeper.follow([f"+{meek.pid}\n"]))


async def test_a_child_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "STOP_S", 0.2)
    async with Children() as children:
        process = await children.spawn("deaf", sys.executable, "-c", STUBBORN)
        while not children.last_words("deaf").startswith("deaf"):
            await asyncio.sleep(0.02)
    assert process.returncode == -signal.SIGKILL
    assert not children.folder.exists()


async def test_without_a_keeper_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    children = Children()
    with pytest.raises(FileNotFoundError):
        await children.__aenter__()
    assert not children.folder.exists()


async def test_children_outlive_a_keeper_that_died() -> None:
    async with Children() as children:
        assert children._keeper is not None
        children._keeper.kill()
        await children._keeper.wait()
        process = await children.spawn("sleep", "sleep", "99")
    assert process.returncode == -signal.SIGTERM


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


async def test_a_redis_that_cannot_be_run_or_never_answers_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "START_S", 0.3)
    cases = {
        program(tmp_path / "text", "not a program"): "cannot be run",
        program(tmp_path / "slow", "#!/bin/sh\nexec sleep 99\n"): "did not start within",
    }
    for path, says in cases.items():
        async with Children() as children:
            redis = EmbeddedRedis(path, children, SystemClock())
            with pytest.raises(CannotStart, match=says):
                await redis.start()
            assert not redis.running


STATE = State(redis="running", writer=True, written=1, crowd=2)


async def test_orders_and_states_pass_the_socket_and_nonsense_disturbs_nobody(tmp_path: Path) -> None:
    taken: list[Order] = []

    async def obey(order: Order) -> State:
        taken.append(order)
        return STATE

    path = tmp_path / "control"
    async with await control.listen(path, obey):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(b"nonsense\n")
        writer.close()
        assert await control.send(path, {"crowd": 5}) == STATE
    assert taken == [{"crowd": 5}]


async def test_a_demo_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    async def hang_up(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.close()

    with pytest.raises(FileNotFoundError):
        await control.send(tmp_path / "control", {})
    async with await asyncio.start_unix_server(hang_up, tmp_path / "control"):
        with pytest.raises(ConnectionResetError):
            await control.send(tmp_path / "control", {})


class Polled:
    """A server that the crowd polls: remembers each request, answers as told."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.answer = b'HTTP/1.1 200 OK\r\nETag: W/"1"\r\nContent-Length: 2\r\n\r\n{}'

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def until(self, count: int) -> None:
        while len(self.requests) < count:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def polled(clients: int) -> AsyncIterator[tuple[Polled, Crowd]]:
    server = Polled()
    async with asyncio.timeout(100), await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        crowd = Crowd("127.0.0.1", listening.sockets[0].getsockname()[1], "/top?limit=100", SystemClock())
        crowd.clients = clients
        task = asyncio.create_task(crowd.run())
        try:
            yield server, crowd
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_the_crowd_polls_over_a_few_connections_and_sends_the_etag_it_was_given() -> None:
    async with polled(clients=1000) as (server, crowd):
        await server.until(200)
        assert server.connections <= CONNECTIONS
        assert server.requests[0].startswith(b"GET /top?limit=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert b"If-None-Match" not in server.requests[0]
        conditional = [request for request in server.requests if b'If-None-Match: W/"1"\r\n' in request]
        assert len(conditional) >= 200 - CONNECTIONS, "all but the first of each connection"
        crowd.clients = 0
        before = len(server.requests)
        await asyncio.sleep(0.5)
        assert len(server.requests) <= before + CONNECTIONS, "nobody polls but who was on the way: else it were 500"


async def test_the_crowd_comes_back_when_a_connection_ends() -> None:
    async with polled(clients=1000) as (server, _):
        server.answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        await server.until(CONNECTIONS + 5)
        assert server.connections > CONNECTIONS
