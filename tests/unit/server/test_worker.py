"""The worker: it answers before its gateway has started, and ends in order when that never comes, or fails.

Time stands still for the loop as well: whatever waits for a timer waits for ever.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import OriginUnavailable
from gateway.readpath import Readiness
from gateway.server import worker as worker_module
from gateway.server.channel import Channel, Message
from gateway.server.order import CANNOT_START, Order
from gateway.server.worker import Worker
from gateway.settings import load
from tests.fakes import FakeClock


class Gateway:
    """A gateway whose start ends when a test lets it, by an error if there is one."""

    def __init__(self) -> None:
        self.draining = False
        self.may_start = asyncio.Event()
        self.error: Exception | None = None
        self.told: list[str] = []
        self.asgi = self.answer

    async def start(self) -> None:
        try:
            await self.may_start.wait()
            if self.error is not None:
                raise self.error
            self.told.append("started")
        finally:
            await asyncio.sleep(0)  # what a start has to close takes a moment as well
            self.told.append("start is over")

    async def stop(self) -> None:
        self.told.append("stopped")

    def readiness(self) -> Readiness:
        return Readiness(ready=False, redis_up=False, fresh=0, last_known=0, missing=1)

    async def answer(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class World:
    """A worker over a loopback listener, and the parent's end of its channel."""

    def __init__(self, gateway: Gateway, worker: Worker, parent: Channel, listener: socket.socket) -> None:
        self.gateway, self.parent, self.listener = gateway, parent, listener
        self.running = asyncio.create_task(worker.run([listener]))

    async def get(self) -> bytes:
        """Ask once; no time passes for the loop, however long the kernel takes to hand the bytes over."""
        with closing(socket.create_connection(self.listener.getsockname())) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            client.setblocking(False)
            given_up = time.monotonic() + 30
            while time.monotonic() < given_up:
                await asyncio.sleep(0)
                try:
                    return client.recv(1000)
                except BlockingIOError:
                    continue
        raise AssertionError("not answered before a timer was due")

    async def heard(self) -> list[Message]:
        """Return all that the worker says until it closes its end."""
        messages: list[Message] = []
        while (message := await self.parent.receive()) is not None:
            messages.append(message)
        return messages


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    path = tmp_path / "gateway.toml"
    path.write_text('[redis]\nprimary = "redis://a"\n[[leaderboards]]\nname = "a"\nkey = "b"\n')
    gateway = Gateway()
    monkeypatch.setattr(worker_module, "built", lambda _order, _counters: gateway)
    monkeypatch.setattr(worker_module, "gc", _NoCollector())
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 0.0)
    async with AsyncExitStack() as stack:
        ours, theirs = socket.socketpair()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        parent = await Channel.over(ours)
        stack.callback(parent.close)
        worker = Worker(Order(0, load(path, {}), "x:y"), await Channel.over(theirs), FakeClock())
        world = World(gateway, worker, parent, listener)
        yield world
        world.running.cancel()
        monkeypatch.undo()


class _NoCollector:
    """The test's own process keeps its collector as it is."""

    def collect(self) -> None: ...

    def freeze(self) -> None: ...

    def set_threshold(self, *_: int) -> None: ...


async def test_a_start_that_never_ends_keeps_nobody_from_an_answer_and_the_stop_ends_it_first(world: World) -> None:
    assert (await world.get()).startswith(b"HTTP/1.1 200")
    assert world.gateway.told == []
    world.parent.send({"do": "stop"})
    assert await world.running == 0
    assert world.gateway.told == ["start is over", "stopped"]
    assert [sorted(message) for message in await world.heard()] == [["started"], ["metrics", "readiness"]]


async def test_a_start_that_fails_while_it_serves_ends_it_and_no_try_would_help(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.get()
    world.gateway.error = OriginUnavailable("no such thing")
    world.gateway.may_start.set()
    assert await world.running == CANNOT_START
    assert world.gateway.told == ["start is over", "stopped"]
    assert "the gateway cannot start: no such thing" in caplog.text


async def test_after_its_start_it_serves_until_the_parent_is_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.gateway.may_start.set()
    assert (await world.get()).startswith(b"HTTP/1.1 200")
    assert world.gateway.told == ["started", "start is over"]
    world.parent.close()
    assert await world.running == 0
    assert "the parent process is gone; stopping" in caplog.text
