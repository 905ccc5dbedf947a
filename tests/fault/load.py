"""A steady load of member reads that checks every answer: whose it is, the rank, the score, the total.

Knows: the board it put there.
Must not know: what is done to the servers meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator

from gateway.errors import GatewayError
from gateway.model import Origin, Standings
from tests.reading import target

MEMBERS = 500
SCORES = {b"m%03d" % number: float(number) for number in range(MEMBERS)}


def check(found: Standings, member: bytes) -> None:
    """Fail unless this is the answer to who asked."""
    (entry,) = found.entries
    assert entry.member == member
    assert (entry.rank, entry.score, found.total) == (MEMBERS - int(member[1:]), SCORES[member], MEMBERS)


class Load:
    """What became of the reads so far."""

    def __init__(self) -> None:
        self.right = self.stale = 0
        self.errors: Counter[str] = Counter()
        self.slowest_s = 0.0

    @property
    def failed(self) -> int:
        """How many reads ended with one of the gateway's errors."""
        return sum(self.errors.values())

    async def more(self, count: int = 100, *, within_s: float = 5.0) -> None:
        """Wait until so many more reads were answered rightly."""
        goal = self.right + count
        async with asyncio.timeout(within_s):
            while self.right < goal:
                await asyncio.sleep(0.005)

    async def _read(self, origin: Origin, numbers: random.Random) -> None:
        loop = asyncio.get_running_loop()
        while True:
            member = b"m%03d" % numbers.randrange(MEMBERS)
            began = loop.time()
            try:
                found = await origin.member(target(), member)
            except GatewayError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.01)
            else:
                check(found, member)
                self.right += 1
                self.stale += found.stamp.stale
                await asyncio.sleep(0.002)
            self.slowest_s = max(self.slowest_s, loop.time() - began)


@contextlib.asynccontextmanager
async def load(origin: Origin, readers: int = 20) -> AsyncIterator[Load]:
    """Read all the time; a wrong answer fails the test when the block ends."""
    seen = Load()
    tasks = [asyncio.create_task(seen._read(origin, random.Random(seed))) for seed in range(readers)]
    try:
        await seen.more(20)
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), f"a reader came upon a wrong answer: {ended!r}"
