"""Rates and the retry budget, in exact numbers."""

from __future__ import annotations

from gateway.replicas.allowance import Rate, RetryBudget


def taken(rate: Rate, now: float, tries: int = 1000) -> int:
    return sum(rate.take(now) for _ in range(tries))


def test_a_rate_gives_its_burst_and_then_what_time_brings() -> None:
    rate = Rate(500.0, 0.0)
    assert taken(rate, 0.0) == 50
    assert taken(rate, 0.02) == 10
    assert taken(rate, 60.0) == 50, "an hour of quiet saves up no more than the burst"


def test_a_rate_of_zero_gives_nothing_ever() -> None:
    rate = Rate(0.0, 0.0)
    assert taken(rate, 0.0) == 0
    assert taken(rate, 1000.0) == 0


def test_a_slow_rate_gives_one_at_a_time() -> None:
    rate = Rate(2.0, 0.0)
    assert [taken(rate, at) for at in (0.0, 0.4, 0.5, 0.6, 1.0)] == [1, 0, 1, 0, 1]


def test_when_every_read_fails_one_in_ten_is_tried_again() -> None:
    budget = RetryBudget(0.0)
    retried = sum(budget.take(reads, 0.0) for reads in range(1, 10_001))
    assert 1000 <= retried <= 1000 + RetryBudget.FLOOR_PER_S


def test_a_quiet_process_can_always_retry_a_few_times_a_second() -> None:
    budget = RetryBudget(0.0)
    assert all(budget.take(reads, float(reads)) for reads in range(100))


def test_a_long_time_without_failures_is_no_licence_for_a_storm() -> None:
    budget = RetryBudget(0.0)
    assert sum(budget.take(1_000_000, 0.0) for _ in range(5000)) == RetryBudget.MOST
