"""Freshness: the table of the contract, cell by cell, and the arithmetic around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.freshness import Action, Age, Life, Loading, decide, hold_s, loading

LIFE = Life(ttl_s=1.0, grace_s=2.0)


@pytest.mark.parametrize(
    ("age_s", "age"),
    [(None, Age.NONE), (0.0, Age.FRESH), (1.0, Age.FRESH), (1.001, Age.GRACE), (3.0, Age.GRACE), (3.001, Age.OLD)],
)
def test_an_age_is_classified_by_ttl_and_grace(age_s: float | None, age: Age) -> None:
    assert LIFE.age(age_s) is age


@given(st.floats(0, 1e9))
def test_ttl_zero_means_that_nothing_stored_is_ever_fresh(age_s: float) -> None:
    assert Life(0.0, 5.0).age(age_s) is Age.OLD


@pytest.mark.parametrize(
    ("age", "idle", "flying", "held", "hold_over"),
    [
        (Age.FRESH, Action.SERVE, Action.SERVE, Action.SERVE, Action.SERVE),
        (Age.GRACE, Action.SERVE_AND_REFRESH, Action.SERVE, Action.SERVE, Action.SERVE_AND_REFRESH),
        (Age.OLD, Action.LOAD, Action.JOIN, Action.SERVE_STALE, Action.SERVE_STALE_AND_LOAD),
        (Age.NONE, Action.LOAD, Action.JOIN, Action.FAIL, Action.LOAD),
    ],
)
def test_the_decision_is_the_contracts_table(
    age: Age, idle: Action, flying: Action, held: Action, hold_over: Action
) -> None:
    assert decide(age, loading(flying=False, failures=0, held=False), flying=False) is idle
    assert decide(age, loading(flying=True, failures=0, held=False), flying=True) is flying
    assert decide(age, loading(flying=False, failures=1, held=True), flying=False) is held
    assert decide(age, loading(flying=False, failures=1, held=False), flying=False) is hold_over


@pytest.mark.parametrize("held", [True, False])
def test_after_a_failure_nobody_waits_for_the_next_try_who_can_be_served(held: bool) -> None:
    state = loading(flying=True, failures=3, held=held)
    assert state is Loading.HELD
    assert decide(Age.OLD, state, flying=True) is Action.SERVE_STALE
    assert decide(Age.GRACE, state, flying=True) is Action.SERVE
    assert decide(Age.NONE, state, flying=True) is Action.JOIN


def test_a_hold_doubles_from_a_quarter_second_to_one() -> None:
    assert [hold_s(failures, 0.0) for failures in (1, 2, 3, 4, 500)] == [0.25, 0.5, 1.0, 1.0, 1.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens_a_hold_and_by_a_quarter_at_most(failures: int, jitter: float) -> None:
    longest = hold_s(failures, 0.0)
    assert 0.75 * longest <= hold_s(failures, jitter) <= longest
