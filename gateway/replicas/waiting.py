"""Waiting: for something, or until time is up, on the clock that was handed in.

Knows: futures and the clock.
Must not know: what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from gateway.clock import Clock


async def wait_for_all(futures: Iterable[asyncio.Future[Any]], clock: Clock, within_s: float) -> None:
    """Return when all are done, or after ``within_s``; what is not done goes on. ``asyncio.wait``, on our clock."""
    waiting = asyncio.ensure_future(asyncio.wait(list(futures)))
    timer = asyncio.ensure_future(clock.sleep(within_s))
    try:
        await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        timer.cancel()
