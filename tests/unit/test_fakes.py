"""The fakes hold what tests rely on."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import OriginUnavailable, WrongType
from gateway.model import Board, Target
from tests.fakes import FakeClock, FakeOrigin, settle


def target(**board: str) -> Target:
    return Target(Board(name="b", key="b", **board), "b", b"b")  # type: ignore[arg-type]


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(2))
    await settle()
    clock.advance(1.9)
    await settle()
    assert not task.done()
    clock.advance(0.2)
    await task


async def test_elapse_lets_a_loop_tick_at_each_due_time() -> None:
    clock, ticks = FakeClock(monotonic=0), []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(tick())
    await clock.elapse(3.5)
    task.cancel()
    assert ticks == [1, 2, 3]
    assert clock.monotonic() == 3.5


def test_wall_time_moves_alone_in_both_directions() -> None:
    clock = FakeClock(monotonic=1, wall=100)
    clock.move_wall(-50)
    assert (clock.monotonic(), clock.wall()) == (1, 50)


async def test_equal_scores_come_in_reverse_byte_order_when_high_scores_lead() -> None:
    origin = FakeOrigin()
    origin.put(b"b", {"alice": 100, "bob": 100, "Carol": 100, "dave": 90, "élan": 100})
    window = await origin.window(target(), 1, 5)
    assert [entry.member.decode() for entry in window.entries] == ["élan", "bob", "alice", "Carol", "dave"]
    window = await origin.window(target(order="asc", ties="competition"), 1, 5)
    assert [(entry.rank, entry.member.decode()) for entry in window.entries] == [
        (1, "dave"),
        (2, "Carol"),
        (2, "alice"),
        (2, "bob"),
        (2, "élan"),
    ]


async def test_neighbors_are_cut_at_the_ends_and_absent_members_have_none() -> None:
    origin = FakeOrigin()
    origin.put(b"b", {str(n): n for n in range(10)})
    around = await origin.neighbors(target(), b"8", 3, 1)
    assert [entry.rank for entry in around.entries] == [1, 2, 3]
    absent = await origin.neighbors(target(), b"x", 3, 1)
    assert (absent.total, list(absent.entries)) == (10, [])


async def test_injected_failures_end_and_gates_hold_reads_back() -> None:
    origin = FakeOrigin()
    origin.put(b"b", {"ann": 1})
    origin.fail(times=1)
    with pytest.raises(OriginUnavailable):
        await origin.member(target(), b"ann")
    gate = origin.hold()
    reads = [asyncio.create_task(origin.member(target(), b"ann")) for _ in range(3)]
    await settle()
    assert origin.running == 3
    gate.set()
    assert [(await read).total for read in reads] == [1, 1, 1]
    origin.wrong_types.add(b"b")
    with pytest.raises(WrongType):
        await origin.window(target(), 1, 2)
    assert origin.calls == {"member": 4, "window": 1}
