"""Requests are due at a constant rate whatever the answers do; several generators' shares make up the whole."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.arrivals import Schedule, deal

rates = st.floats(1, 20_000)
lengths = st.floats(0.1, 3)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    of = draw(st.integers(1, 4))
    return Schedule(
        draw(st.floats(1, 500)), draw(lengths), draw(st.integers(0, of - 1)), of, burst=draw(st.integers(1, 50))
    )


@given(schedules(), st.floats(0, 4))
def test_exactly_what_lies_behind_us_is_due(schedule: Schedule, elapsed: float) -> None:
    due = schedule.due_by(elapsed)
    assert 0 <= due <= schedule.count
    assert all(schedule.due_at(index) <= elapsed + 1e-9 for index in range(due))
    if due < schedule.count:
        assert schedule.due_at(due) > elapsed - 1e-9


@given(rates, lengths, st.integers(1, 5), st.integers(1, 100))
def test_the_shares_make_up_the_whole_rate(rate: float, seconds: float, of: int, burst: int) -> None:
    shares = [Schedule(rate, seconds, share, of, burst) for share in range(of)]
    assert sum(share.count for share in shares) == round(rate * seconds)
    assert sum(share.due_by(seconds) for share in shares) == round(rate * seconds)


@given(schedules())
def test_everything_asked_falls_into_a_second_of_the_run(schedule: Schedule) -> None:
    asked = schedule.asked_by_second()
    assert sum(asked.values()) == schedule.count
    assert all(0 <= second <= schedule.seconds for second in asked)


def test_a_burst_is_due_at_once_and_the_rate_is_kept_on_average() -> None:
    schedule = Schedule(rate=200, seconds=10, burst=1000)
    assert {schedule.due_at(index) for index in range(1000)} == {0.0}
    assert schedule.due_at(1000) == 5.0
    assert schedule.due_by(0) == schedule.due_by(4.9) == 1000


def test_nothing_is_due_before_the_start() -> None:
    assert Schedule(100, 1).due_by(-1) == 0


@pytest.mark.parametrize(
    ("rate", "seconds", "share", "of", "burst"),
    [(0, 1, 0, 1, 1), (1, 0, 0, 1, 1), (1, 1, 1, 1, 1), (1, 1, -1, 1, 1), (1, 1, 0, 1, 0)],
)
def test_what_makes_no_schedule_is_refused(rate: float, seconds: float, share: int, of: int, burst: int) -> None:
    with pytest.raises(ValueError, match="no schedule"):
        Schedule(rate, seconds, share, of, burst)


def test_a_hand_holds_exactly_the_weights_in_another_order_for_each_seed() -> None:
    weights = {"top": 45, "conditional": 45, "rank": 7, "neighbors": 3}
    hand, other = deal(weights, Random(1)), deal(weights, Random(2))
    assert Counter(hand) == Counter(other) == {"top": 450, "conditional": 450, "rank": 70, "neighbors": 30}
    assert list(hand) != list(other)
