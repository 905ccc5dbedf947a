"""Warming: load every configured board once, so that the first client finds it and readiness can be told.

Knows: the boards to load, how many at once, when to try again.
Must not know: how a board is loaded, or what readiness is used for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator

from gateway.clock import Clock
from gateway.model import Target
from gateway.readpath import ReadPath

AT_ONCE = 16
"""Loads under way at once: 10,000 boards start in seconds, and leave the nodes room for readers."""
AGAIN_S = 0.5


class Warming:
    """The task that loads what nobody has asked for yet; ends once every board was answered.

    ``targets`` gives the boards to load now; it is asked anew before each round, since periods change.
    """

    def __init__(self, readpath: ReadPath, targets: Callable[[], Iterable[Target]], clock: Clock) -> None:
        self._readpath = readpath
        self._targets = targets
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, behind the reads."""
        self._task = asyncio.create_task(self._run(), name="warming")

    async def stop(self) -> None:
        """Stop at once."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def round(self) -> bool:
        """Try every board once; return whether all were answered."""
        waiting = iter(list(self._targets()))
        results = await asyncio.gather(*(self._warm(waiting) for _ in range(AT_ONCE)))
        return all(results)

    async def _warm(self, waiting: Iterator[Target]) -> bool:
        answered = True
        for target in waiting:
            answered = await self._readpath.warm(target) and answered
        return answered

    async def _run(self) -> None:
        while not await self.round():
            await self._clock.sleep(AGAIN_S)
