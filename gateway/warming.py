"""Warming: load every configured board once, so that the first client finds it and readiness can be told.

Knows: the boards to load, how many at once, when to try again, when a new period makes a board unknown again.
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
GIVEN_UP_S = 10.0
"""The longest pause between two tries of boards that fail while others are answered."""
LOOK_S = 60.0
"""How often a period that nobody asked for is looked for besides: after an outage, or at the end of a gap."""


class Warming:
    """The task that loads what nobody has asked for yet: every board at first, later each period that begins.

    ``targets`` gives the boards to load now; it is asked anew before each round, since periods change. ``boundary``
    gives the next wall instant at which one of them does; None: no board has periods, and the first boards are all.
    """

    def __init__(
        self,
        readpath: ReadPath,
        targets: Callable[[], Iterable[Target]],
        clock: Clock,
        *,
        boundary: Callable[[float], float] | None = None,
    ) -> None:
        self._readpath = readpath
        self._targets = targets
        self._clock = clock
        self._boundary = boundary
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

    async def round(self, targets: Iterable[Target]) -> None:
        """Try every one of these boards once."""
        waiting = iter(list(targets))
        await asyncio.gather(*(self._warm(waiting) for _ in range(AT_ONCE)))

    async def _warm(self, waiting: Iterator[Target]) -> None:
        for target in waiting:
            await self._readpath.warm(target)

    def _unanswered(self) -> list[Target]:
        return [target for target in self._targets() if not self._readpath.is_answered(target)]

    async def _run(self) -> None:
        pause_s = AGAIN_S
        while rest := self._unanswered():
            await self.round(rest)
            if not (left := self._unanswered()):
                break
            # Where others were answered, these few may never be: no reason to ask for them twice a second for ever.
            given_up = len(rest) <= len(left) < len(list(self._targets()))
            pause_s = min(2 * pause_s, GIVEN_UP_S) if given_up else AGAIN_S
            await self._clock.sleep(pause_s)
        while self._boundary is not None:
            wall = self._clock.wall()
            await self._clock.sleep(min(self._boundary(wall) - wall, LOOK_S))
            # Not what is known already: that is for its readers to keep fresh, and an outage for their probes.
            await self.round(target for target in self._targets() if not self._readpath.is_known(target))
