"""An origin over real servers, as the gateway builds it from its settings.

Knows: the settings, the layouts, replica reads.
Must not know: what is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gateway.clock import SystemClock
from gateway.counters import Counters
from gateway.layouts.scripts import scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.model import Board, Order, ReadFrom, Standings, Target, Ties
from gateway.replicas.build import build
from gateway.replicas.reads import ReplicaReads
from gateway.settings import RedisSettings


class RealOrigin(SortedSetOrigin):
    """The origin under test, with what tests want to look at: its ``reads``."""

    def __init__(self, reads: ReplicaReads, settings: RedisSettings) -> None:
        super().__init__(reads, clock=SystemClock(), request_budget_s=settings.request_budget_s)
        self.reads = reads

    def states(self) -> dict[str, str]:
        """Return each node's state by its address."""
        return {node.address: node.state for node in self.reads.nodes()}

    def roles(self) -> dict[str, str]:
        """Return each node's role by its address."""
        return {node.address: node.role for node in self.reads.nodes()}


@contextlib.asynccontextmanager
async def origin_at(redis: Mapping[str, Any]) -> AsyncIterator[RealOrigin]:
    """Give an origin for a ``[redis]`` table, connected if that is possible at once."""
    settings = RedisSettings.model_validate(dict(redis))
    reads = build(
        settings,
        scripts=scripts_of(("desc", "ordinal")),
        clock=SystemClock(),
        counters=Counters(),
        random=random.Random(1),
    )
    await reads.start()
    try:
        yield RealOrigin(reads, settings)
    finally:
        await reads.stop()


def board(
    key: str,
    *,
    profiles: str | None = None,
    order: Order = "desc",
    ties: Ties = "ordinal",
    read_from: ReadFrom = "replicas",
) -> Target:
    """Return a board of that key, as a request would name it."""
    made = Board(name=key, key=key, order=order, ties=ties, profiles=profiles, read_from=read_from)
    return Target(made, key, key.encode(), profiles.encode() if profiles else None)


def rank(standings: Standings) -> int | None:
    """Return the one member's rank, None if it is absent."""
    return standings.entries[0].rank if standings.entries else None


async def soon(condition: Callable[[], bool], *, within_s: float = 30.0, what: str = "") -> float:
    """Wait until a condition holds, and return how long that took; fail after ``within_s``."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - began
