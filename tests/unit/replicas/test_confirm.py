"""Confirmations of absence: shared, remembered for a second, limited, and never owned by one caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.counters import Counters
from gateway.errors import OriginUnavailable, Overloaded
from gateway.model import Stamp
from gateway.replicas.commands import Plain, Request
from gateway.replicas.confirm import Confirmations
from gateway.replicas.limits import Limits
from tests.fakes import FakeClock, settle

WHAT = Plain(b"ZCARD", b"lb:s")


class Primary:
    """Answers EXISTS from a set of keys, other commands with their name."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.keys: set[bytes] = set()
        self.asked: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def read(self, request: Request) -> tuple[Any, Stamp]:
        self.asked.append(request)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        stamp = Stamp(self.clock.monotonic(), self.clock.wall())
        if isinstance(request, Plain) and request.name == b"EXISTS":
            return int(request.key in self.keys), stamp
        return "the primary's own", stamp


class Rig:
    def __init__(self, per_s: float = 500.0) -> None:
        self.clock, self.counters = FakeClock(), Counters()
        self.primary = Primary(self.clock)
        self.confirmations = Confirmations(
            self.primary.read, Limits(primary_max_reads_per_s=per_s), clock=self.clock, counters=self.counters
        )

    def count(self, outcome: str) -> int:
        return self.counters.counters["gateway_redis_confirmations_total"].cells.get((outcome,), [0])[0]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_an_absent_key_is_confirmed_and_remembered_for_a_second(rig: Rig) -> None:
    first = await rig.confirmations.confirm(WHAT)
    rig.clock.advance(0.9)
    assert await rig.confirmations.confirm(Plain(b"OTHER", b"lb:s")) == first
    assert first[0] is None
    assert len(rig.primary.asked) == 1
    rig.clock.advance(0.2)
    rig.primary.keys.add(b"lb:s")
    assert (await rig.confirmations.confirm(WHAT))[0] == "the primary's own"


async def test_a_key_that_lives_is_answered_by_the_primary_and_not_remembered(rig: Rig) -> None:
    rig.primary.keys.add(b"lb:s")
    for _ in range(2):
        assert (await rig.confirmations.confirm(WHAT))[0] == "the primary's own"
    assert len(rig.primary.asked) == 4


async def test_a_thousand_callers_are_one_question_whoever_leaves(rig: Rig) -> None:
    rig.primary.gate.clear()
    callers = [asyncio.ensure_future(rig.confirmations.confirm(WHAT)) for _ in range(1000)]
    await settle()
    for caller in callers[:500]:
        caller.cancel()
    await settle()
    rig.primary.gate.set()
    replies = await asyncio.gather(*callers[500:])
    assert {reply for reply, _ in replies} == {None}
    assert len(rig.primary.asked) == 1
    assert (rig.count("absent"), rig.count("shared")) == (1, 999)


async def test_a_failure_reaches_everyone_and_the_next_one_asks_anew(rig: Rig) -> None:
    rig.primary.error = OriginUnavailable()
    callers = [asyncio.ensure_future(rig.confirmations.confirm(WHAT)) for _ in range(10)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(result, OriginUnavailable) for result in results)
    rig.primary.error = None
    assert (await rig.confirmations.confirm(WHAT))[0] is None
    assert rig.count("failed") == 1


async def test_a_failure_that_nobody_waits_for_any_more_is_retrieved(rig: Rig) -> None:
    rig.primary.gate.clear()
    rig.primary.error = OriginUnavailable()
    caller = asyncio.ensure_future(rig.confirmations.confirm(WHAT))
    await settle()
    caller.cancel()
    rig.primary.gate.set()
    await settle()
    assert rig.count("failed") == 1


def ask(rig: Rig, *numbers: int) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(rig.confirmations.confirm(Plain(b"ZCARD", b"lb:%d" % number))) for number in numbers]


async def test_confirmations_have_a_tenth_of_the_primarys_allowance_and_then_wait_for_their_turn(rig: Rig) -> None:
    for number in range(50):
        await rig.confirmations.confirm(Plain(b"ZCARD", b"lb:%d" % number))
    late = ask(rig, 50, 51)
    await settle()
    assert not any(task.done() for task in late)
    assert (await rig.confirmations.confirm(Plain(b"ZCARD", b"lb:0")))[0] is None, "what is known needs no question"
    rig.clock.advance(0.022)
    assert [reply for reply, _ in await asyncio.gather(*late)] == [None, None], "both go with one turn"
    assert rig.count("refused") == 0


async def test_keys_that_line_up_together_are_asked_about_in_one_turn() -> None:
    """A thousand boards begin at midnight, and each is asked for every second: none is refused, nor the primary asked
    more often than it may be."""
    rig = Rig(per_s=100.0)  # ten turns a second
    for second in range(5):
        tasks = ask(rig, *range(900))
        await rig.clock.elapse(0.9)
        assert {reply for reply, _ in await asyncio.gather(*tasks)} == {None}
        assert len(rig.primary.asked) == 900 * (second + 1)
        rig.clock.advance(1.1)
    assert rig.count("refused") == 0


async def test_more_keys_than_can_have_their_turn_in_time_are_refused_at_once() -> None:
    rig = Rig(per_s=100.0)
    tasks = ask(rig, *range(1400))
    await settle()
    refused = [task.exception() for task in tasks if task.done() and task.exception() is not None]
    assert [type(error) for error in refused] == [Overloaded] * 100, "ten turns at once, three in 0.3 s"
    await rig.clock.elapse(0.33)
    assert len(rig.primary.asked) == 1300
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_where_no_read_may_go_to_the_primary_nothing_is_confirmed() -> None:
    rig = Rig(per_s=0.0)
    with pytest.raises(Overloaded):
        await rig.confirmations.confirm(WHAT)
    assert rig.primary.asked == []


async def test_a_replica_that_was_wrong_costs_the_primary_a_read_of_its_allowance() -> None:
    rig = Rig(per_s=20.0)  # two at once
    rig.primary.keys.add(b"lb:s")
    assert (await rig.confirmations.confirm(WHAT))[0] == "the primary's own"
    task = asyncio.create_task(rig.confirmations.confirm(WHAT))
    await rig.clock.elapse(0.5)
    with pytest.raises(Overloaded):
        await task


async def test_stopping_ends_what_is_under_way(rig: Rig) -> None:
    rig.primary.gate.clear()
    caller = asyncio.ensure_future(rig.confirmations.confirm(WHAT))
    await settle()
    await rig.confirmations.stop()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_stopping_ends_what_waits_for_its_turn() -> None:
    rig = Rig(per_s=40.0)
    for number in range(4):
        await rig.confirmations.confirm(Plain(b"ZCARD", b"lb:%d" % number))
    (caller,) = ask(rig, 4)
    await settle()
    await rig.confirmations.stop()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert rig.clock.sleepers == 0
