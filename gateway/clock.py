"""Clock: the only way the gateway learns the time or waits.

Knows: the system's two clocks and the event loop's sleep.
Must not know: what anybody needs the time for.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Give the two kinds of time, and wait.

    Ages, deadlines and lifetimes run on ``monotonic``; ``wall`` is for what a reader sees (``as_of``), for
    the boundaries of periods, and for nothing else, since it may jump.
    """

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970-01-01T00:00:00Z."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of monotonic time."""
        ...


class SystemClock:
    """The clock of this machine. The attributes are the C functions themselves, so that a call costs 40 ns."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)
