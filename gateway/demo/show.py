"""The show: everything the demo runs, started in order and stopped in the opposite one.

Knows: which part needs which, what may be asked of it while it runs.
Must not know: arguments, signals, what is printed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.clock import Clock
from gateway.demo import board
from gateway.demo.children import Children
from gateway.demo.control import CONTROL_VARIABLE, Order, State, listen
from gateway.demo.crowd import MOST_CLIENTS, Crowd
from gateway.demo.embedded import LOOPBACK, CannotStart, EmbeddedRedis, free_ports
from gateway.demo.writer import Drift, Writer
from gateway.load.board import load_board

CONTROL = "control"
BUILD = "gateway.demo.worker:build"
ANYWHERE = {"0.0.0.0", "::"}  # noqa: S104 (what to connect to instead when the gateway listens there)

CROWD = 100
"""Game clients at the start: enough to see that they share one read a second."""

READY_S = 30.0
"""How long the gateway may take to answer; on a quiet machine it takes half a second."""


@dataclass(slots=True, kw_only=True)
class Show:
    """What runs, and the switches that the page has."""

    redis: EmbeddedRedis
    writer: Writer
    crowd: Crowd
    gateway: Process
    port: int
    admin: int
    switching: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def obey(self, order: Order) -> State:
        """Do what the page asks, and say how things stand."""
        if "writer" in order:
            self.writer.on = order["writer"]
        if "crowd" in order:
            self.crowd.clients = min(order["crowd"], MOST_CLIENTS)
        if "redis" in order and not self.switching.locked():
            async with self.switching:
                await self._switch(start=order["redis"] == "start")
        return self.state()

    def state(self) -> State:
        """Say how things stand."""
        return State(redis=self._redis(), writer=self.writer.on, written=self.writer.written, crowd=self.crowd.clients)

    def _redis(self) -> Literal["running", "stopped", "changing"]:
        if self.switching.locked():
            return "changing"
        return "running" if self.redis.running else "stopped"

    async def _switch(self, *, start: bool) -> None:
        if not start:
            await self.redis.stop()
        elif not self.redis.running:
            with suppress(CannotStart):  # the page goes on saying that Redis is stopped
                await self.redis.stop()
                await self.redis.start()


@asynccontextmanager
async def running(
    *, program: Path, host: str, port: int, environ: Mapping[str, str], clock: Clock
) -> AsyncIterator[Show]:
    """Start Redis, load the board, start the gateway, the writer and the crowd; stop all of it at the end.

    ``port`` 0 takes a free one. Raise ``CannotStart``; nothing is left behind, wherever it happened.
    """
    async with Children() as children:
        redis = EmbeddedRedis(program, children, clock)
        await redis.start()
        rows = board.rows()
        await asyncio.to_thread(_load, redis.primary, rows)
        free, admin = free_ports(2)
        port = port or free
        config = board.settings(host=host, port=port, admin=admin, primary=redis.primary, replicas=redis.replicas)
        gateway = await _serve(children, config, environ)
        address = LOOPBACK if host in ANYWHERE else host, port
        await _until_ready(children, gateway, clock, address)
        async with redis.client() as client, asyncio.TaskGroup() as tasks:
            show = Show(
                redis=redis,
                writer=Writer(client, board.KEY, Drift(rows, random.Random()), clock),
                crowd=Crowd(*address, f"/v1/leaderboards/{board.NAME}/top?limit=100", clock),
                gateway=gateway,
                port=port,
                admin=admin,
            )
            show.crowd.clients = CROWD
            switches = await listen(children.folder / CONTROL, show.obey)
            endless = [tasks.create_task(show.writer.run()), tasks.create_task(show.crowd.run())]
            try:
                yield show
            finally:
                switches.close()
                await _cancelled(endless)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks until they end: asyncio.wait_for of Python 3.11, in which redis-py waits, may swallow the first."""
    while living := [task for task in tasks if not task.done()]:
        for task in living:
            task.cancel()
        await asyncio.wait(living, timeout=0.5)


def _load(port: int, rows: list[tuple[bytes, float]]) -> None:
    # Without retries: the demo's end waits for this thread, and Redis may be stopped under it.
    with Redis(host=LOOPBACK, port=port, retry=Retry(NoBackoff(), 0)) as client:
        load_board(client, board.KEY.encode(), rows)


async def _serve(children: Children, config: str, environ: Mapping[str, str]) -> Process:
    """Start ``serve`` as an operator would, with a settings file that no GATEWAY_ variable changes."""
    file = children.folder / "gateway.toml"
    file.write_text(config)
    plain = {name: value for name, value in environ.items() if not name.startswith("GATEWAY_")}
    command = (sys.executable, "-m", "gateway", "serve", "--config", str(file), "--build", BUILD)
    return await children.spawn("gateway", *command, environ=plain | {CONTROL_VARIABLE: str(children.folder / CONTROL)})


async def _until_ready(children: Children, gateway: Process, clock: Clock, address: tuple[str, int]) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while not await _ready(*address):
                if gateway.returncode is not None:
                    raise CannotStart(f"The gateway ended at once: {children.last_words('gateway')}")
                await clock.sleep(0.05)
    except TimeoutError:
        raise CannotStart(f"The gateway was not ready within {READY_S:.0f} s.") from None


async def _ready(host: str, port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
