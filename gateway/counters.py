"""Counters: plain integers that modules add to and a collector reads.

Knows: names, label values, buckets.
Must not know: Prometheus, processes, or who reads them.

A multiprocess counter costs 2.4 µs a read; adding to a list cell costs 30 ns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Cell: TypeAlias = list[int]
"""One counter's value, boxed: ``cell[0] += 1`` adds one."""

DURATION_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds; the first is 0.5 ms since a hit takes a tenth of that."""

Samples: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(slots=True)
class Counter:
    """A number that only grows, by label values from a fixed, small set (never what a client chose)."""

    name: str
    help: str
    labels: tuple[str, ...]
    cells: dict[tuple[str, ...], Cell] = field(default_factory=dict)

    def cell(self, *values: str) -> Cell:
        """Return the box of these label values, made on first use; callers keep it."""
        return self.cells.setdefault(values, [0])

    def add(self, *values: str) -> None:
        """Add one; for paths where a kept cell is not worth it."""
        self.cell(*values)[0] += 1


@dataclass(slots=True)
class Histogram:
    """Durations in seconds by label values, in ``DURATION_BUCKETS_S``."""

    name: str
    help: str
    labels: tuple[str, ...]
    series: dict[tuple[str, ...], Durations] = field(default_factory=dict)

    def durations(self, *values: str) -> Durations:
        """Return the series of these label values, made on first use; callers keep it."""
        return self.series.setdefault(values, Durations())


class Durations:
    """One series of a histogram: a count by bucket (the last is +Inf) and the sum in seconds."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BUCKETS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(DURATION_BUCKETS_S, seconds)] += 1
        self.total_s += seconds


@dataclass(slots=True)
class Gauge:
    """A number read when somebody looks; ``over_workers`` says how several processes' values become one."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Samples]
    over_workers: Literal["sum", "max"]


class Counters:
    """The registry of one process. Modules declare what they count; names must be unique."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        self.histograms: dict[str, Histogram] = {}
        self.gauges: dict[str, Gauge] = {}

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        """Declare a counter, or return the one already declared under this name."""
        return self.counters.setdefault(name, Counter(name, help_text, tuple(labels)))

    def histogram(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Histogram:
        """Declare a histogram of durations, or return the one already declared under this name."""
        return self.histograms.setdefault(name, Histogram(name, help_text, tuple(labels)))

    def gauge(
        self,
        name: str,
        help_text: str,
        read: Callable[[], Samples],
        *,
        labels: Iterable[str] = (),
        over_workers: Literal["sum", "max"] = "sum",
    ) -> None:
        """Declare a gauge: ``read`` returns label values → number, ``{(): n}`` for one without labels."""
        self.gauges[name] = Gauge(name, help_text, tuple(labels), read, over_workers)
