"""The demo's writer: how scores wander, and when it writes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping

from redis.exceptions import ConnectionError as Disconnected

from gateway.demo import board
from gateway.demo.writer import CALM_S, CHANGES_PER_TICK, HOT, TICK_S, WAVE_S, Drift, Writer
from tests.fakes import FakeClock, settle


class FakeRedis:
    def __init__(self) -> None:
        self.writes: list[Mapping[bytes, float]] = []
        self.away = False

    async def zadd(self, name: str, mapping: Mapping[bytes, float], *, xx: bool) -> int:
        assert (name, xx) == ("lb", True)
        if self.away:
            raise Disconnected("stopped")
        self.writes.append(mapping)
        return len(mapping)


def drift(seed: int = 1) -> Drift:
    return Drift(board.rows(), random.Random(seed))


def test_scores_wander_around_the_real_ones_and_stay_near_them_for_ever() -> None:
    home = dict(board.rows())
    wandering = drift()
    for _ in range(20_000):
        for member, score in wandering.step(4).items():
            assert 0.4 < score / home[member] < 2.5
            assert score == int(score) > 0


def test_within_seconds_the_top_hundred_is_in_another_order_and_has_other_members() -> None:
    scores, wandering = dict(board.rows()), drift()
    before = sorted(scores, key=lambda member: -scores[member])[:100]
    for _ in range(int(30 / TICK_S)):
        scores |= wandering.step(CHANGES_PER_TICK)
    after = sorted(scores, key=lambda member: -scores[member])[:100]
    assert sum(a != b for a, b in zip(before, after, strict=True)) > 50
    assert set(before) != set(after)


def test_members_far_below_the_top_change_too() -> None:
    hot = {member for member, _ in board.rows()[:HOT]}
    wandering = drift()
    changed = [member for _ in range(200) for member in wandering.step(4)]
    assert 0.1 < sum(member not in hot for member in changed) / len(changed) < 0.4


async def advance(clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds / TICK_S)):
        clock.advance(TICK_S)
        await settle(5)


async def test_it_writes_in_waves_pauses_when_told_to_and_outlives_redis() -> None:
    clock, redis = FakeClock(), FakeRedis()
    writer = Writer(redis, "lb", drift(), clock)
    task = asyncio.create_task(writer.run())
    await settle()

    await advance(clock, WAVE_S)
    in_a_wave = len(redis.writes)
    assert in_a_wave >= WAVE_S / TICK_S - 2
    assert writer.written == sum(map(len, redis.writes))
    await advance(clock, CALM_S - 2 * TICK_S)
    assert len(redis.writes) <= in_a_wave + 1, "the calm is for 304s"

    await advance(clock, 1)
    writer.on, before = False, len(redis.writes)
    assert before > in_a_wave
    await advance(clock, 1)
    assert len(redis.writes) == before

    writer.on, redis.away = True, True
    await advance(clock, 1)
    redis.away = False
    await advance(clock, 1)
    assert len(redis.writes) > before

    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
