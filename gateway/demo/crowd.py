"""The demo's crowd: game clients that poll the top through real sockets, so that sharing has something to share.

Knows: enough HTTP/1.1 to poll one path with If-None-Match.
Must not know: the gateway's insides, Redis.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

from gateway.clock import Clock

CONNECTIONS = 20
"""The crowd shares a few connections, as behind an edge; how many clients there are is a matter of pace."""

MOST_CLIENTS = 1000
_RETRY_S = 0.5


class Crowd:
    """``clients`` game clients, each of which polls once a second."""

    def __init__(self, host: str, port: int, path: str, clock: Clock) -> None:
        self._address = host, port
        self._path = path
        self._clock = clock
        self.clients = 0

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(CONNECTIONS):
                group.create_task(self._poll_for_ever(number))

    async def _poll_for_ever(self, number: int) -> None:
        await self._clock.sleep(number / CONNECTIONS)  # spread over the second
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._address)
                try:
                    await self._poll(reader, writer)
                finally:
                    writer.close()
            except (OSError, EOFError, ValueError):
                await self._clock.sleep(_RETRY_S)

    async def _poll(self, reader: StreamReader, writer: StreamWriter) -> None:
        request = f"GET {self._path} HTTP/1.1\r\nHost: {self._address[0]}\r\n".encode()
        etag, due = b"", self._clock.monotonic()
        while True:
            due = max(due + CONNECTIONS / (self.clients or CONNECTIONS), self._clock.monotonic() - 1)
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
            if not self.clients:
                continue
            writer.write(request + (b"If-None-Match: " + etag + b"\r\n" if etag else b"") + b"\r\n")
            etag = await _answer(reader) or etag


async def _answer(reader: StreamReader) -> bytes | None:
    """Read one answer to its end; return its ETag."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n")[1:-2])}
    await reader.readexactly(int(fields.get(b"content-length", b"0")))
    if fields.get(b"connection") == b"close":
        raise EOFError
    return fields.get(b"etag")
