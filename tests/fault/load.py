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
        self.right = 0
        self.begins()

    def begins(self) -> None:
        """Forget what went wrong so far."""
        self.stale = 0
        self.errors: Counter[str] = Counter()
        self.slowest_s = 0.0

    @property
    def failed(self) -> int:
        """How many reads ended with one of the gateway's errors."""
        return sum(self.errors.values())

    async def more(self, count: int = 100, *, within_s: float = 30.0) -> None:
        """Wait until so many more reads were answered rightly."""
        goal = self.right + count
        async with asyncio.timeout(within_s):
            while self.right < goal:
                await asyncio.sleep(0.005)

    async def steady(self, count: int = 300, *, marked: bool = False, within_s: float = 30.0) -> None:
        """Wait until so many reads in a row were answered rightly: none with the mark (or, ``marked``, all), no error.

        For what holds from now on: the machine may spoil a few reads, and no more than a few.
        """
        async with asyncio.timeout(within_s):
            while True:
                wrong, goal = self._wrong(marked=marked), self.right + count
                while wrong == self._wrong(marked=marked):
                    if self.right >= goal:
                        return
                    await asyncio.sleep(0.005)

    def _wrong(self, *, marked: bool) -> int:
        return self.failed + (self.right - self.stale if marked else self.stale)

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
    """Read all the time; a wrong answer fails the test when the block ends.

    What went wrong before the block, while the first connections were opened, does not count.
    """
    seen = Load()
    tasks = [asyncio.create_task(seen._read(origin, random.Random(seed))) for seed in range(readers)]
    try:
        await seen.steady(20)
        seen.begins()
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), f"a reader came upon a wrong answer: {ended!r}"
