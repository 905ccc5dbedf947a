"""A network in two halves that can part: a gate before each server, which holds back what comes from the other half.

Knows: bytes, connections, and which half a client is in by the address that it connects from.
Must not know: Redis, Sentinel, the gateway.

What is held back passes once the halves are one again, as TCP would send it again; meanwhile connections stay open
and new ones are accepted, to no avail.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.servers import free_port

NEAR, FAR = "127.0.0.1", "127.0.0.2"
"""Where the clients of each half connect from."""


class Network:
    """Both halves, one unless ``part`` has been called."""

    def __init__(self) -> None:
        self._one = asyncio.Event()
        self._one.set()

    def part(self) -> None:
        """Let nothing pass between the halves any more."""
        self._one.clear()

    def join(self) -> None:
        """Let everything pass, first what was held back."""
        self._one.set()

    async def passable(self) -> None:
        """Wait until the halves are one."""
        await self._one.wait()


class Gate:
    """The way to one server; ``port`` is what the server has to be announced with."""

    def __init__(self, network: Network, half: str) -> None:
        self.half, self.port, self.target = half, free_port(), 0
        self._network = network
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        crosses = writer.get_extra_info("peername")[0] != self.half
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if crosses:
                await self._network.passable()
            beyond, to = await asyncio.open_connection("127.0.0.1", self.target)
            ways = [asyncio.create_task(self._pump(*way, crosses)) for way in ((reader, to), (beyond, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                to.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, crosses: bool) -> None:
        while chunk := await reader.read(65_536):
            if crosses:
                await self._network.passable()
            writer.write(chunk)
            await writer.drain()
        if crosses:
            await self._network.passable()  # nor does the end of a connection get across

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
