"""A crowd that polls a gateway over kept connections at a steady rate, and remembers every answer it got.

Knows: HTTP/1.1 as the gateway speaks it.
Must not know: what is done to the servers meanwhile, or what a right answer is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tests.integration.edges import parsed


class Seen(NamedTuple):
    """One answer: ``sent`` and ``got`` are wall seconds, and ``seconds`` what lies between them."""

    client: int
    target: str
    sent: float
    seconds: float
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def got(self) -> float:
        """When the answer was there."""
        return self.sent + self.seconds

    @property
    def stale(self) -> bool:
        """Whether the answer says that it is stale, which it has to say in every place or in none."""
        marks = {bool(self.body["stale"]), "leaderboard-stale" in self.headers}
        if self.headers["cache-control"] != "no-store":
            marks.add("ttl=-" in self.headers["cache-status"])
        assert len(marks) == 1, (self.target, self.headers, self.body["stale"])
        return marks.pop()

    @property
    def as_of(self) -> float:
        """When the data was read, in wall seconds."""
        return datetime.fromisoformat(self.headers["leaderboard-as-of"]).timestamp()


class Crowd:
    """Clients that ask in turn for ``targets``, each every ``pause_s``; ``seen`` grows."""

    def __init__(self, port: int, targets: Sequence[str], *, pause_s: float) -> None:
        self._port = port
        self._targets = targets
        self._pause_s = pause_s
        self.seen: list[Seen] = []

    async def client(self, number: int) -> None:
        """Poll for ever; a connection that breaks ends the crowd with its error."""
        client = number
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.closing(writer):
            due = time.monotonic() + self._pause_s * number / 25
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due = max(due + self._pause_s, time.monotonic() - 1)
                target = self._targets[number % len(self._targets)]
                number += 1
                self.seen.append(await _ask(client, reader, writer, target))

    def since(self, wall: float, until: float = float("inf")) -> list[Seen]:
        """Return the answers to what was sent in a span of wall time."""
        return [one for one in self.seen if wall <= one.sent < until]


async def _ask(client: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> Seen:
    sent, began = time.time(), time.monotonic()
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    seconds = time.monotonic() - began
    reply = parsed(head)
    body = await reader.readexactly(int(reply.headers["content-length"]))
    return Seen(client, target, sent, seconds, reply.status, reply.headers, json.loads(body))


@contextlib.asynccontextmanager
async def polling(port: int, targets: Sequence[str], *, clients: int, pause_s: float) -> AsyncIterator[Crowd]:
    """Poll all the time; an error of any client is raised when the block ends."""
    crowd = Crowd(port, targets, pause_s=pause_s)
    tasks = [asyncio.create_task(crowd.client(number)) for number in range(clients)]
    try:
        yield crowd
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        assert isinstance(error, asyncio.CancelledError), f"a client got no answer: {error!r}"
