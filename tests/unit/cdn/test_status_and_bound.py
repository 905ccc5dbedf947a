"""What the gateway says of its own cache, and the sum that it publishes."""

from __future__ import annotations

from typing import Any

import http_sf
import pytest

from cdn.bound import Delays, staleness_bound_s
from cdn.status import CACHE, cache_status


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (cache_status("hit"), b"leaderboard-gateway; hit"),
        (cache_status("miss"), b"leaderboard-gateway; fwd=uri-miss; stored"),
        (cache_status("miss", stored=False), b"leaderboard-gateway; fwd=uri-miss"),
        (cache_status("joined"), b"leaderboard-gateway; fwd=uri-miss; collapsed"),
        (cache_status("stale", age_s=17.9), b"leaderboard-gateway; hit; ttl=-17"),
        (cache_status("stale", age_s=0.2), b"leaderboard-gateway; hit; ttl=-1"),
    ],
)
def test_each_way_in_which_a_read_ends_has_its_value_of_rfc_9211(value: bytes, expected: bytes) -> None:
    assert value == expected


@pytest.mark.parametrize("outcome", ["hit", "joined", "miss", "stale"])
def test_the_value_is_a_structured_field_with_one_member(outcome: str) -> None:
    parsed: Any = http_sf.parse(cache_status(outcome, age_s=3), tltype="list")  # type: ignore[arg-type]
    assert [str(member) for member, _ in parsed] == [CACHE.decode()]


def test_the_bound_is_the_sum_of_all_delays_and_counts_the_stale_window_twice() -> None:
    delays = Delays(
        lag_s=2.0, ttl_s=1.0, grace_s=1.0, load_s=0.5, edge_ttl_s=5, client_ttl_s=2, stale_while_revalidate_s=5
    )
    assert staleness_bound_s(delays) == 21.5


def test_the_bound_has_no_rounding_dust() -> None:
    assert staleness_bound_s(Delays(lag_s=0.1, ttl_s=0.2, grace_s=0.0, load_s=0.0)) == 0.3
