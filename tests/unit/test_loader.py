"""Loader: many boards that are read at the same moment take turns, and a bounded number of them waits."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import OriginUnavailable, Overloaded
from gateway.loader import AT_ONCE, QUEUE, OriginLoader
from gateway.model import TOP_LIMIT, Board, SnapshotKey, Target
from gateway.replicas.allowance import LANES
from tests.fakes import FakeClock, FakeOrigin, settle

FAMILY = Board(name="clan-<id>", key="lb:<id>")


class World:
    """A loader over a fake origin, and loads of as many boards as wanted."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.origin = FakeOrigin(self.clock)
        self.loader = OriginLoader(self.origin, self.clock)

    def load(self, number: int) -> asyncio.Task[object]:
        name = f"clan-{number}"
        target = Target(FAMILY, name, f"lb:{number}".encode())
        return asyncio.create_task(self.loader.load(target, SnapshotKey(name, None, 1, TOP_LIMIT)))


async def test_boards_that_expire_together_take_turns_and_all_are_loaded() -> None:
    world = World()
    gate = world.origin.hold()
    loads = [world.load(number) for number in range(QUEUE)]
    await settle()
    assert world.origin.running == AT_ONCE < LANES["snapshot"], "the origin refuses none of them"
    gate.set()
    await asyncio.gather(*loads)
    assert world.origin.calls["window"] == QUEUE
    assert world.origin.most_running == AT_ONCE


async def test_no_more_than_can_be_answered_wait() -> None:
    world = World()
    gate = world.origin.hold()
    loads = [world.load(number) for number in range(AT_ONCE)]
    await settle()
    loads += [world.load(number) for number in range(QUEUE)]
    await settle()
    with pytest.raises(Overloaded):
        await world.load(QUEUE)
    gate.set()
    await asyncio.gather(*loads)


async def test_loads_that_fail_or_are_cancelled_leave_their_turn_to_others() -> None:
    world = World()
    gate = world.origin.hold()
    running, waiting = ([world.load(number) for number in range(AT_ONCE)] for _ in range(2))
    await settle()
    for load in (*running[: AT_ONCE // 2], *waiting[: AT_ONCE // 2]):
        load.cancel()
    world.origin.fail(times=AT_ONCE // 2)
    gate.set()
    ended = await asyncio.gather(*running, *waiting, return_exceptions=True)
    assert sum(isinstance(one, OriginUnavailable) for one in ended) == AT_ONCE // 2
    await asyncio.gather(*(world.load(number) for number in range(2 * AT_ONCE)))
