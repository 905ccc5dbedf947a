"""Two readers of one rank in the background of a test, and every answer they got; an outage as they live through it.

Knows: the board they read (``bob`` is 2nd), how nodes are stopped.
Must not know: which shape of Redis it is, or what a right answer is while it changes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.errors import GatewayError, OriginUnavailable
from gateway.replicas.node import FIRST_PAUSE_S, LONGEST_PAUSE_S
from tests.origins import RealOrigin, board, rank, soon
from tests.servers import RedisCluster, RedisGroup, RedisServer

BUDGET_S = 5.0
QUICK = {"read_timeout_ms": 2000, "request_budget_ms": 5000, "max_lag_ms": 3000}
"""Patient in what a busy machine may delay, and as quick as that allows to notice what a fault has changed."""
PATIENT = {**QUICK, "read_timeout_ms": 5000}
"""Where nothing falls silent, but one node alone has the data for a while: it may stand still, and is asked."""
SLACK_S = 3.0
"""What a machine that stands still for a moment may add to a read."""
OUTAGE_S = float(os.environ.get("OUTAGE_SECONDS", "2"))
"""How long everything is away. ``OUTAGE_SECONDS=20`` makes it what it stands for; by default it only lasts until
the pauses between two attempts to connect have grown as long as they ever do."""


@dataclass(frozen=True)
class Sample:
    """One read under load: when it ended, how long it took, and what came of it."""

    at: float
    took_s: float
    rank: int | None = None
    stale: bool = False
    as_of: float = 0.0
    error: GatewayError | None = None

    @property
    def began(self) -> float:
        """When it was asked."""
        return self.at - self.took_s


class Load:
    """Two readers of one member's rank, every 10 ms each, in the background of a test."""

    def __init__(self, origin: RealOrigin, key: str = "s") -> None:
        self.origin, self.key, self.samples = origin, key, list[Sample]()

    async def _read(self) -> None:
        while True:
            began = time.monotonic()
            try:
                answer = await self.origin.member(board(self.key), b"bob")
            except GatewayError as error:
                self.samples.append(Sample(time.monotonic(), time.monotonic() - began, error=error))
            else:
                stamp, now = answer.stamp, time.monotonic()
                self.samples.append(Sample(now, now - began, rank(answer), stamp.stale, stamp.as_of))
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._read()) for _ in range(2)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def since(self, at: float) -> list[Sample]:
        """Return what has ended since a moment."""
        return [sample for sample in self.samples if sample.at >= at]

    async def begin(self) -> None:
        """Wait for fresh answers, and forget the reads so far: at first there may have been no connection yet."""
        await self.fresh_again(within_s=30)
        self.samples.clear()

    async def more(self, count: int = 10) -> list[Sample]:
        """Wait for so many more reads that are yet to begin, and return them."""
        now = time.monotonic()

        def begun() -> list[Sample]:
            return [sample for sample in self.samples if sample.began >= now]

        await soon(lambda: len(begun()) >= count, what="more reads")
        return begun()

    async def fresh_again(self, *, within_s: float) -> float:
        """Wait until half a second has passed with nothing but answers without a mark; return how long it took."""

        def fresh() -> bool:
            recent = self.since(time.monotonic() - 0.5)
            return len(recent) >= 5 and not any(sample.stale or sample.error for sample in recent)

        return await soon(fresh, within_s=within_s, what="fresh answers again")

    def check(self) -> None:
        """Fail unless every answer named the right rank, and none took much longer than the budget."""
        assert {sample.rank for sample in self.samples if not sample.error} == {2}
        assert max(sample.took_s for sample in self.samples) < BUDGET_S + SLACK_S

    def errors(self, since: float = 0.0) -> list[GatewayError]:
        """Return what has failed since a moment."""
        return [sample.error for sample in self.since(since) if sample.error]

    def stale(self, since: float = 0.0) -> list[Sample]:
        """Return what has been answered with the mark since a moment."""
        return [sample for sample in self.since(since) if sample.stale]


def fill(group: RedisGroup | RedisCluster, key: str = "s") -> None:
    """Put three members on the board: cyd 1st, bob 2nd, ann 3rd."""
    group.write("ZADD", key, 10, "ann", 20, "bob", 30, "cyd")


async def outage(nodes: Sequence[RedisServer], load: Load) -> None:
    """Stop every node, keeping its data, until nothing is tried often any more; reads fail cleanly meanwhile."""
    for node in nodes:
        node.call("SAVE")
    for node in nodes:
        node.kill()
    await asyncio.sleep(OUTAGE_S)
    await soon(lambda: _at_longest_pauses(load.origin), what="the pauses between attempts have grown to the longest")
    recent = await load.more()
    assert all(isinstance(sample.error, OriginUnavailable) for sample in recent), recent


def _at_longest_pauses(origin: RealOrigin) -> bool:
    failures = [node.failed_opens for node in origin.reads._nodes.all()]
    return min(FIRST_PAUSE_S * 2.0 ** (count - 1) for count in failures) >= LONGEST_PAUSE_S
