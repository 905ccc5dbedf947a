"""Latencies as a histogram: a bounded number of buckets, however many requests, and percentiles that never flatter.

Knows: milliseconds, buckets, percentiles.
Must not know: where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Buckets: TypeAlias = Mapping[float, int]
"""How many latencies fell into each bucket; the key is the bucket's upper bound in milliseconds."""


def bucket_ms(latency_ms: float) -> float:
    """Return the bucket of a latency: rounded **up**, to 0.1 ms below 10 ms, 1 ms below 100 ms, then two digits.

    Locust's own buckets are whole milliseconds, in which a cached answer is 0.
    """
    if latency_ms < 10:
        return math.ceil(latency_ms * 10) / 10 if latency_ms > 0 else 0.1
    if latency_ms < 100:
        return float(math.ceil(latency_ms))
    step = 10.0 ** (int(math.log10(latency_ms)) - 1)
    return math.ceil(latency_ms / step) * step


def percentile(buckets: Buckets, share: float) -> float:
    """Return the upper bound, in ms, of the bucket that holds this share (0 to 1) of latencies; NaN if there are none.

    Nearest rank: with 100 latencies, 0.99 is the 99th smallest.
    """
    total = sum(buckets.values())
    if not total:
        return math.nan
    wanted = max(1, math.ceil(total * share - 1e-9))
    seen = 0
    for bound in sorted(buckets):
        seen += buckets[bound]
        if seen >= wanted:
            return bound
    raise AssertionError("unreachable: the buckets hold the total")


def merged(parts: Iterable[Buckets]) -> dict[float, int]:
    """Return several processes' buckets as one."""
    whole: dict[float, int] = {}
    for part in parts:
        for bound, count in part.items():
            whole[bound] = whole.get(bound, 0) + count
    return whole


def upper_bound_of(cumulative: Mapping[float, float], share: float) -> float:
    """Return the percentile of a Prometheus histogram: the first bound (in its own unit) that holds the share."""
    total = max(cumulative.values(), default=0)
    if not total:
        return math.nan
    return min(bound for bound, count in cumulative.items() if count >= total * share)
