"""A network of three sites that can part: a gate before each server, which holds back what comes from a site cut off.

Knows: bytes, connections, and which site a client is at by the address that it connects from.
Must not know: Redis, Sentinel, what is at which site.

What is held back passes once the sites are joined again, as TCP would send it again; meanwhile connections stay open
and new ones are accepted, to no avail.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.servers import free_port

HERE, FAR, NEAR = "127.0.0.1", "127.0.0.2", "127.0.0.3"
"""Where the clients of each site connect from: ``HERE`` is everyone who does not say."""


class Network:
    """Which sites cannot reach each other: none, until ``part`` has been called."""

    def __init__(self) -> None:
        self._parted: set[frozenset[str]] = set()
        self._change = asyncio.Event()

    def part(self, one: str, other: str) -> None:
        """Let nothing pass between two sites any more."""
        self._parted.add(frozenset((one, other)))

    def join(self, one: str, other: str) -> None:
        """Let everything pass, first what was held back."""
        self._parted.discard(frozenset((one, other)))
        self._change.set()
        self._change = asyncio.Event()

    async def passable(self, one: str, other: str) -> None:
        """Wait until the sites reach each other."""
        while frozenset((one, other)) in self._parted:
            await self._change.wait()


class Gate:
    """The way to one server; ``port`` is what the server has to be announced with."""

    def __init__(self, network: Network, site: str) -> None:
        self.site, self.port, self.target = site, free_port(), 0
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
        site: str = writer.get_extra_info("peername")[0]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._network.passable(site, self.site)
            beyond, to = await asyncio.open_connection("127.0.0.1", self.target)
            ways = [asyncio.create_task(self._pump(*way, site)) for way in ((reader, to), (beyond, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                to.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: str) -> None:
        while chunk := await reader.read(65_536):
            await self._network.passable(site, self.site)
            writer.write(chunk)
            await writer.drain()
        await self._network.passable(site, self.site)  # nor does the end of a connection get across

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
