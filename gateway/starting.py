"""Starting: what clients ask while the gateway still starts waits for that, for a moment.

Knows: whether a start is under way, how long a read waits for its end.
Must not know: what a start consists of, how a read is answered.

The port is open from the first instant on, so that a start that takes long is seen to be alive. A read of that moment
would find no board restored and no node connected: an error, where a moment later there is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

from gateway.clock import Clock
from gateway.model import Query
from gateway.readpath import Reply

PATIENCE_S = 1.0
"""A start that reaches Redis takes some milliseconds; one that takes longer may never end, and reads go on without."""


class Reads(Protocol):
    """What answers reads."""

    def read(self, query: Query) -> Coroutine[Any, Any, Reply]: ...


class Starting:
    """Hand reads on, once the start is over or ``PATIENCE_S`` have gone by since it began."""

    def __init__(self, reads: Reads, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock
        self._over: asyncio.Event | None = None

    def read(self, query: Query) -> Coroutine[Any, Any, Reply]:
        """Answer a query as the read path does. Cancelling a caller that waits disturbs nobody."""
        return self._reads.read(query) if self._over is None else self._later(self._over, query)

    @contextlib.asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """Hold back what is asked while the block runs; however it ends, reads go on."""
        self._over = over = asyncio.Event()
        patience = asyncio.create_task(self._lose_patience(over), name="patience")
        try:
            yield
        finally:
            patience.cancel()
            self._release(over)

    async def _lose_patience(self, over: asyncio.Event) -> None:
        await self._clock.sleep(PATIENCE_S)
        self._release(over)

    def _release(self, over: asyncio.Event) -> None:
        self._over = None
        over.set()

    async def _later(self, over: asyncio.Event, query: Query) -> Reply:
        await over.wait()
        return await self._reads.read(query)
