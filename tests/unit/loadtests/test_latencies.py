"""Latencies go into a bounded number of buckets, and percentiles never come out lower than they were."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from loadtests.latencies import bucket_ms, merged, percentile, upper_bound_of

some_ms = st.floats(0, 100_000)


@given(some_ms)
def test_a_bucket_never_flatters_and_is_off_by_a_tenth_at_most(latency: float) -> None:
    bucket = bucket_ms(latency)
    assert latency <= bucket * (1 + 1e-9)
    assert bucket <= max(latency * 1.1, latency + 0.1) + 1e-9


@given(st.lists(some_ms))
def test_however_many_latencies_there_are_the_buckets_are_few(latencies: list[float]) -> None:
    assert len({bucket_ms(latency) for latency in latencies}) <= 100 + 90 + 91 * 3


@given(st.lists(some_ms, min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_bucket_of_the_nearest_rank(latencies: list[float], share: float) -> None:
    buckets = merged({bucket_ms(latency): 1} for latency in latencies)
    wanted = sorted(latencies)[max(1, math.ceil(len(latencies) * share - 1e-9)) - 1]
    assert percentile(buckets, share) == bucket_ms(wanted)


def test_a_percentile_of_nothing_is_no_number() -> None:
    assert math.isnan(percentile({}, 0.5))
    assert math.isnan(upper_bound_of({}, 0.5))
    assert math.isnan(upper_bound_of({0.1: 0.0, math.inf: 0.0}, 0.5))


def test_a_prometheus_histogram_gives_the_bound_that_holds_the_share() -> None:
    cumulative = {0.0005: 40.0, 0.001: 60.0, 0.005: 99.0, math.inf: 100.0}
    assert upper_bound_of(cumulative, 0.5) == 0.001
    assert upper_bound_of(cumulative, 0.4) == 0.0005
    assert upper_bound_of(cumulative, 1.0) == math.inf
