"""Loader: what turns a miss into a snapshot.

Knows: the origin's window, encoding, the seam that tiers and archives wrap.
Must not know: flights, freshness, stores, who waits.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.clock import Clock
from gateway.encode import Content, Snapshot
from gateway.errors import Overloaded
from gateway.model import Origin, SnapshotKey, Stamp, Target

AT_ONCE = 96
"""Loads under way at once, fewer than the origin takes: a thousand boards that expire together take turns, and a Redis
that has come back is not flattened."""

QUEUE = 2000
"""Loads that wait for their turn: about what can be read and encoded before those who wait must be answered."""


class Loader(Protocol):
    """What turns a miss into a snapshot: the origin itself, or tiers around it."""

    async def load(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Return a snapshot of places ``key.first`` to ``key.last``; raise as ``Origin`` does."""
        ...


class OriginLoader:
    """Load straight from the origin and encode; ``AT_ONCE`` at a time, the others in the order in which they came."""

    def __init__(self, origin: Origin, clock: Clock) -> None:
        self._origin = origin
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def load(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Read the window in one round trip and encode it; raise ``Overloaded`` where too many wait already."""
        if self._waiting >= QUEUE:
            raise Overloaded
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._load(target, key)
        finally:
            self._turns.release()

    async def _load(self, target: Target, key: SnapshotKey) -> Snapshot:
        window = await self._origin.window(target, key.first, key.last)
        stamp = window.stamp
        return Snapshot(
            key,
            Content.of(target, key.first, window),
            began=stamp.began,
            as_of=stamp.as_of,
            behind_s=behind_s(stamp, self._clock),
            stale=stamp.stale,
            short_lived=window.profiles_missing,
        )


def behind_s(stamp: Stamp, clock: Clock) -> float:
    """Return how much older the data is than the read: 0 for a node in step."""
    if not stamp.stale:
        return 0.0
    began_wall = clock.wall() - (clock.monotonic() - stamp.began)
    return max(0.0, began_wall - stamp.as_of)
