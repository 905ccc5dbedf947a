"""Starting: reads wait for a start that is under way, and for no start that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.model import Board, Query, Target
from gateway.readpath import Reply
from gateway.starting import PATIENCE_S, Starting
from tests.fakes import FakeClock, settle

QUERY = Query("top", Target(Board(name="a", key="a"), "a", b"a"))


class Reads:
    """Answers that say whether the start was over; it counts them."""

    def __init__(self) -> None:
        self.started = False
        self.answers: list[bool] = []

    async def read(self, query: Query) -> Reply:
        assert query is QUERY
        self.answers.append(self.started)
        return Reply("miss", b"", 0.0, stale=False)


class World:
    def __init__(self) -> None:
        self.clock, self.reads = FakeClock(), Reads()
        self.starting = Starting(self.reads, self.clock)
        self.stack = AsyncExitStack()

    def ask(self) -> asyncio.Task[Reply]:
        return asyncio.create_task(self.starting.read(QUERY))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Give a start that is under way."""
    world = World()
    await world.stack.enter_async_context(world.starting.under_way())
    yield world
    await world.stack.aclose()
    await settle()
    assert world.clock.sleepers == 0, "nothing is left that waits"


async def test_a_read_during_the_start_is_answered_when_it_is_over(world: World) -> None:
    asked = [world.ask() for _ in range(3)]
    await settle()
    assert world.reads.answers == []
    world.reads.started = True
    await world.stack.aclose()
    await asyncio.gather(*asked)
    assert world.reads.answers == [True] * 3


async def test_a_start_that_does_not_end_holds_back_no_read_for_longer_than_a_moment(world: World) -> None:
    early = world.ask()
    await world.clock.elapse(PATIENCE_S - 0.01)
    assert world.reads.answers == []
    await world.clock.elapse(0.02)
    await early
    await world.ask()
    assert world.reads.answers == [False, False]


async def test_a_caller_that_leaves_takes_no_other_with_it(world: World) -> None:
    leaves, stays = world.ask(), world.ask()
    await settle()
    leaves.cancel()
    await settle()
    await world.stack.aclose()
    await stays
    assert (leaves.cancelled(), len(world.reads.answers)) == (True, 1)


async def test_a_start_that_fails_lets_reads_go_on(world: World) -> None:
    async def fail() -> None:
        async with world.starting.under_way():
            await settle()
            raise OSError("no such thing")

    failing = asyncio.create_task(fail())
    await asyncio.sleep(0)
    asked = world.ask()
    with pytest.raises(OSError, match="no such thing"):
        await failing
    await asked
    assert world.reads.answers == [False]


async def test_without_a_start_a_read_is_handed_on_at_once() -> None:
    world = World()
    assert (await world.starting.read(QUERY)).outcome == "miss"
