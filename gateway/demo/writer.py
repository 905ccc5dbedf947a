"""The demo's writer: changes scores many times a second, the way a living board changes.

Knows: how scores wander, one ZADD per tick.
Must not know: the gateway, HTTP, where Redis came from.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from redis.exceptions import RedisError

from gateway.clock import Clock

TICK_S = 0.1
CHANGES_PER_TICK = 4
"""40 scores a second: every place of the top 100 moves every few seconds, and the eye can follow."""

WAVE_S, CALM_S = 10.0, 3.0
"""Changes come in waves: in the calm between two of them, polls are answered 304."""

HOT = 140
"""Three changes in four hit one of the first 140: enough beyond place 100 that members come and go there."""

_STEP = 0.02  # one change is about 2 % of a score
_PULL = 0.014  # and is drawn back to where it began, so that scores stay within some 12 % for ever


class Client(Protocol):
    """What the writer needs of redis-py's asyncio client."""

    def zadd(self, name: str, mapping: Mapping[bytes, float], *, xx: bool) -> Awaitable[object]:
        """Set scores of members that are there."""
        ...


class Drift:
    """Scores that wander around the real ones: a downloads count over the last 30 days rises and falls."""

    def __init__(self, rows: Sequence[tuple[bytes, float]], chance: random.Random) -> None:
        self._home = rows
        self._away = [0.0] * len(rows)
        self._chance = chance

    def step(self, changes: int) -> dict[bytes, float]:
        """Return some members' new scores: at most ``changes`` of them, whole numbers."""
        return dict(self._move(self._pick()) for _ in range(changes))

    def _pick(self) -> int:
        hot = min(HOT, len(self._home))
        return self._chance.randrange(hot if self._chance.random() < 0.75 else len(self._home))

    def _move(self, index: int) -> tuple[bytes, float]:
        member, home = self._home[index]
        self._away[index] += self._chance.gauss(-_PULL * self._away[index], _STEP)
        return member, float(round(home * math.exp(self._away[index])))


class Writer:
    """Write until cancelled; pauses when told to, and while Redis is away."""

    def __init__(self, client: Client, key: str, drift: Drift, clock: Clock) -> None:
        self._client = client
        self._key = key
        self._drift = drift
        self._clock = clock
        self.on = True
        self.written = 0

    async def run(self) -> None:
        """Write in waves for ever."""
        began = self._clock.monotonic()
        while True:
            await self._clock.sleep(TICK_S)
            if self.on and (self._clock.monotonic() - began) % (WAVE_S + CALM_S) < WAVE_S:
                await self._tick()

    async def _tick(self) -> None:
        scores = self._drift.step(CHANGES_PER_TICK)
        try:
            await self._client.zadd(self._key, scores, xx=True)
        except (RedisError, OSError):
            return  # stopped by the page; what was drawn comes with the next change of that member
        self.written += len(scores)
