"""Warming: every configured board is loaded once, and again when a period begins that nobody has asked for."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.errors import OriginUnavailable
from gateway.loader import OriginLoader
from gateway.model import TOP_LIMIT, Board, SnapshotKey, Target, Window
from gateway.periods import Period
from gateway.readpath import Limits, ReadPath
from gateway.store import Store
from gateway.warming import AGAIN_S, LOOK_S, Warming
from tests.fakes import FakeClock, FakeOrigin

ALL, DAY = Board(name="all", key="lb:all"), Board(name="day", key="lb:day:<period>")
DAY_S = 1000.0


class World:
    """A board for good and one whose periods are numbered thousands of seconds."""

    def __init__(self) -> None:
        self.clock = FakeClock(wall=10 * DAY_S + 500)
        self.origin = FakeOrigin(self.clock)
        self.origin.put(b"lb:all", {"ann": 1})
        self.readpath = ReadPath(
            origin=self.origin,
            loader=OriginLoader(self.origin, self.clock),
            store=Store(),
            clock=self.clock,
            random=lambda: 0.0,
            limits=Limits(request_budget_s=3600.0),
            bound_s=lambda _: 1.0,
        )
        self.warming = Warming(self.readpath, self.targets, self.clock, boundary=self.boundary)

    def boundary(self, wall: float) -> float:
        return (wall // DAY_S + 1) * DAY_S

    def targets(self) -> Iterator[Target]:
        day = self.clock.wall() // DAY_S
        period = Period("daily", f"d{day:g}", day * DAY_S, (day + 1) * DAY_S, f"d{day:g}", None)
        yield Target(ALL, "all", b"lb:all")
        yield Target(DAY, "day", f"lb:day:{day:g}".encode(), period=period)

    def is_ready(self) -> bool:
        return self.readpath.readiness(self.targets(), redis_up=True).ready


async def test_every_board_is_loaded_once_and_again_until_it_is_answered() -> None:
    world = World()
    world.origin.fail()
    world.warming.start()
    await world.clock.elapse(3 * AGAIN_S)
    assert not world.is_ready()
    world.origin.heal()
    await world.clock.elapse(1 + AGAIN_S)
    assert world.is_ready()
    await world.warming.stop()


async def test_a_period_that_nobody_asked_for_is_loaded_at_its_first_second() -> None:
    world = World()
    world.warming.start()
    await world.clock.elapse(499)
    assert world.origin.calls["window"] == 2
    await world.clock.elapse(1.5)
    assert world.origin.calls["window"] == 3, "the new period alone: what is known is its readers' to keep fresh"
    assert world.is_ready()
    await world.warming.stop()


async def test_a_period_that_began_in_an_outage_is_loaded_within_a_minute_of_its_end() -> None:
    world = World()
    world.warming.start()
    await world.clock.elapse(499)
    world.origin.fail(OriginUnavailable())
    await world.clock.elapse(2)
    assert not world.is_ready()
    world.origin.heal()
    await world.clock.elapse(LOOK_S)
    assert world.is_ready()
    await world.warming.stop()


async def test_without_periods_nothing_runs_on() -> None:
    world = World()
    warming = Warming(world.readpath, world.targets, world.clock)
    warming.start()
    await world.clock.elapse(1)
    assert world.clock.sleepers == 0
    await warming.stop()


async def test_a_board_that_cannot_be_read_blocks_nothing_and_is_asked_for_ever_more_seldom() -> None:
    """Its key is outside what the account may read, say: the others are served, and are not loaded over and over."""
    world = World()
    refused = Target(Board(name="other", key="other"), "other", b"other")
    window, asked = world.origin.window, []

    async def guarded(target: Target, first: int, last: int) -> Window:
        asked.append(target.leaderboard)
        if target is refused:
            raise OriginUnavailable
        return await window(target, first, last)

    world.origin.window = guarded  # type: ignore[method-assign]
    boards = [*world.targets(), refused]
    warming = Warming(world.readpath, lambda: boards, world.clock)
    warming.start()
    await world.clock.elapse(1)
    assert not world.readpath.readiness(boards, redis_up=True).ready, "it may still come"
    await world.clock.elapse(9)
    assert world.readpath.readiness(boards, redis_up=True) == (True, True, 2, 0, 1)
    assert not world.readpath.readiness(boards, redis_up=False).ready
    assert not world.readpath.readiness([refused], redis_up=True).ready, "nothing at all can be served"
    await world.clock.elapse(100)
    assert asked.count("all") == asked.count("day") == 1
    assert 10 <= asked.count("other") <= 20
    world.origin.window = window  # type: ignore[method-assign]
    await world.clock.elapse(11)
    assert world.readpath.readiness(boards, redis_up=True) == (True, True, 3, 0, 0)
    await warming.stop()


async def test_a_board_that_is_still_the_restored_one_is_asked_for_at_a_pace() -> None:
    """What a round brings is judged by what is known after it: nothing is asked for without a pause."""
    world = World()
    top = await world.readpath._loader.load(next(world.targets()), SnapshotKey("all", None, 1, TOP_LIMIT))
    world.readpath.adopt(next(world.targets()), top, restored=True)
    world.origin.fail()
    world.warming.start()
    await world.clock.elapse(5)
    assert world.origin.calls["window"] <= 1 + 2 * 5 / AGAIN_S
    world.origin.heal()
    await world.clock.elapse(2)
    assert world.readpath.readiness(world.targets(), redis_up=True) == (True, True, 2, 0, 0)
    await world.warming.stop()
