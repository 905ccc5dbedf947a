"""A TCP proxy that misbehaves on command: late, silent, slow, cut, reset, refusing.

Knows: bytes and connections.
Must not know: Redis, the gateway.

In the loop of an async test: ``async with FaultProxy(server.port) as proxy``. For a sync test, or between two
processes while the test's own loop is blocked: ``with ThreadedProxy(server.port) as proxy``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar, overload

from tests.servers.process import free_port

T = TypeVar("T")


@dataclass(slots=True)
class Direction:
    """What happens to bytes that travel one way. All of it may change while connections are open."""

    latency_s: float = 0.0
    """Added to every chunk; chunks overlap, so it costs no throughput."""
    bytes_per_s: float | None = None
    """Slower than the sender: bytes trickle, one at a time if need be."""
    hanging: bool = False
    """Nothing is passed on, all of it later."""
    dropping: bool = False
    """Nothing is passed on, ever; the connection looks fine."""
    cut_after: int | None = None
    """After that many more bytes this way the connection that carries them is closed; works once."""
    passed: int = 0
    """Bytes passed on so far."""


class _Connection:
    """One client's connection and the one to the target that belongs to it."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter, target: asyncio.StreamWriter) -> None:
        self.proxy, self.client, self.target = proxy, client, target

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
        """Read without delay and write as the direction says, until either end is closed."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def read() -> None:
            while chunk := await reader.read(65_536):
                due.put_nowait((loop.time() + way.latency_s, chunk))
            due.put_nowait((loop.time() + way.latency_s, b""))

        reading = asyncio.create_task(read())
        try:
            while True:
                at, chunk = await due.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                while way.hanging:
                    await self.proxy.changed()
                if not chunk:
                    return
                if not way.dropping:
                    await self._pass_on(chunk, writer, way)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _pass_on(self, chunk: bytes, writer: asyncio.StreamWriter, way: Direction) -> None:
        if way.cut_after is not None and len(chunk) >= way.cut_after:
            chunk, cut = chunk[: way.cut_after], True
            way.cut_after = None
        else:
            cut = False
            way.cut_after = None if way.cut_after is None else way.cut_after - len(chunk)
        if way.bytes_per_s is None:
            writer.write(chunk)
        else:
            for byte in chunk:
                writer.write(bytes([byte]))
                await asyncio.sleep(1 / way.bytes_per_s)
        way.passed += len(chunk)
        await writer.drain()
        if cut:
            raise ConnectionAbortedError

    def end(self, *, reset: bool = False) -> None:
        """Close both halves; with ``reset`` the client sees a reset and not an end."""
        for writer in (self.client, self.target):
            if reset:
                with contextlib.suppress(OSError):
                    linger = struct.pack("ii", 1, 0)  # on, 0 s: closing sends RST
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            else:
                writer.close()


class FaultProxy:
    """Forward ``port`` to a target; ``up`` (requests) and ``down`` (replies) say how.

    ``accepted`` counts connections over the proxy's life. ``target`` may change; open connections keep theirs.
    """

    def __init__(self, target: int, *, port: int | None = None) -> None:
        self.target, self.port = target, port or free_port()
        self.up, self.down = Direction(), Direction()
        self.accepted = 0
        self.resetting = False
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def changed(self) -> None:
        """Wait until somebody calls one of the switches below."""
        await self._change.wait()

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, writer, target_writer)
        self._connections.add(connection)
        if self.resetting:
            connection.end(reset=True)
        ways = [
            asyncio.create_task(connection.pump(reader, target_writer, self.up)),
            asyncio.create_task(connection.pump(target_reader, writer, self.down)),
        ]
        try:
            with contextlib.suppress(asyncio.CancelledError):  # asyncio's streams complain of a cancelled handler
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            connection.end()
            self._connections.discard(connection)

    def hang(self) -> None:
        """Accept, and pass nothing on, in either direction, until ``heal``."""
        self.up.hanging = self.down.hanging = True

    def drop(self) -> None:
        """Swallow everything, in both directions, as a firewall does that lost its state."""
        self.up.dropping = self.down.dropping = True

    def delay(self, seconds: float) -> None:
        """Add this much to every request and to every reply."""
        self.up.latency_s = self.down.latency_s = seconds

    def slow(self, bytes_per_s: float) -> None:
        """Let replies trickle."""
        self.down.bytes_per_s = bytes_per_s

    def cut(self, after: int) -> None:
        """Close the connection that carries the reply byte number ``after`` from now on, once."""
        self.down.cut_after = after

    def reset(self, *, new_ones_too: bool = False) -> None:
        """Reset every open connection, and with ``new_ones_too`` every later one until ``heal``."""
        self.resetting = new_ones_too
        for connection in list(self._connections):
            connection.end(reset=True)

    async def refuse(self) -> None:
        """Stop listening and reset what is open: new connections are refused until ``accept`` or ``heal``."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()
        await asyncio.sleep(0)

    async def accept(self) -> None:
        """Listen again."""
        await self.start()

    async def heal(self) -> None:
        """Forward everything at once again, what was held back by ``hang`` included."""
        for way in (self.up, self.down):
            way.latency_s, way.bytes_per_s, way.cut_after = 0.0, None, None
            way.hanging = way.dropping = False
        self.resetting = False
        self._wake()
        await self.start()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.end(reset=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class ThreadedProxy:
    """A ``FaultProxy`` in a thread with a loop of its own; ``do`` runs a switch there and returns its result."""

    def __init__(self, target: int, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @overload
    def do(self, switch: Callable[[FaultProxy], Coroutine[Any, Any, T]]) -> T: ...

    @overload
    def do(self, switch: Callable[[FaultProxy], T]) -> T: ...

    def do(self, switch: Callable[[FaultProxy], Any]) -> Any:
        """Run ``switch(proxy)`` in the proxy's loop: ``proxy.do(lambda p: p.hang())``."""

        async def run() -> Any:
            done = switch(self.proxy)
            return (await done) if isinstance(done, Awaitable) else done

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()

        async def make() -> FaultProxy:
            proxy = FaultProxy(self._target, port=self.port)
            await proxy.start()
            return proxy

        self.proxy = asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.proxy.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
