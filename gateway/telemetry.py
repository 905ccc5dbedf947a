"""Telemetry: what the processes counted, added up, in the form that Prometheus reads.

Knows: ``Counters``, prometheus-client, how values of several processes become one.
Must not know: how the processes are reached, what is counted.

A snapshot is plain JSON: the numbers of one process at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, TypedDict

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.counters import DURATION_BUCKETS_S, Counters

Sample: TypeAlias = tuple[list[str], list[float]]
"""Label values, and the numbers: one for counters and gauges, the bucket counts and the sum for histograms."""


class Family(TypedDict):
    """One metric of a snapshot."""

    help: str
    labels: list[str]
    how: str
    """``add`` for what only grows, ``sum`` or ``max`` for a gauge over several processes."""
    samples: list[Sample]


Snapshot: TypeAlias = dict[str, Family]


def snapshot(counters: Counters) -> Snapshot:
    """Return the numbers of this process now, as JSON can carry them."""
    families = counted(counters)
    for gauge in counters.gauges.values():
        samples = [(list(values), [float(number)]) for values, number in gauge.read().items()]
        families[gauge.name] = Family(
            help=gauge.help, labels=list(gauge.labels), how=gauge.over_workers, samples=samples
        )
    return families


def counted(counters: Counters) -> Snapshot:
    """Return what only grows, without asking the gauges, some of which look at every board."""
    families: Snapshot = {}
    for counter in counters.counters.values():
        samples = [(list(values), [float(cell[0])]) for values, cell in counter.cells.items()]
        families[counter.name] = Family(help=counter.help, labels=list(counter.labels), how="add", samples=samples)
    for histogram in counters.histograms.values():
        samples = [
            (list(values), [*map(float, series.counts), series.total_s]) for values, series in histogram.series.items()
        ]
        families[histogram.name] = Family(
            help=histogram.help, labels=list(histogram.labels), how="histogram", samples=samples
        )
    return families


def only_growing(families: Snapshot) -> Snapshot:
    """Return what of a process's numbers still holds when it has ended: its gauges are gone with it."""
    return {name: family for name, family in families.items() if family["how"] in ("add", "histogram")}


def added_up(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return one snapshot of several processes: what only grows is added, gauges as each of them says."""
    totals: dict[str, Family] = {}
    numbers: dict[str, dict[tuple[str, ...], list[float]]] = {}
    for families in snapshots:
        for name, family in families.items():
            totals.setdefault(name, Family(help=family["help"], labels=family["labels"], how=family["how"], samples=[]))
            series = numbers.setdefault(name, {})
            for values, found in family["samples"]:
                known = series.get(tuple(values))
                series[tuple(values)] = found if known is None else _joined(known, found, family["how"])
    for name, family in totals.items():
        family["samples"] = [(list(values), found) for values, found in sorted(numbers[name].items())]
    return totals


def _joined(one: list[float], other: list[float], how: str) -> list[float]:
    if how == "max":
        return [max(pair) for pair in zip(one, other, strict=True)]
    return [sum(pair) for pair in zip(one, other, strict=True)]


class _Families(Collector):
    """What prometheus-client asks for the families of one scrape."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield each family with its samples."""
        for name, family in self._families.items():
            yield _metric(name, family)


def _metric(name: str, family: Family) -> Metric:
    labels = family["labels"]
    if family["how"] == "histogram":
        histogram = HistogramMetricFamily(name, family["help"], labels=labels)
        for values, numbers in family["samples"]:
            histogram.add_metric(values, _cumulative(numbers[:-1]), numbers[-1])
        return histogram
    single: CounterMetricFamily | GaugeMetricFamily
    if family["how"] == "add":
        single = CounterMetricFamily(name, family["help"], labels=labels)
    else:
        single = GaugeMetricFamily(name, family["help"], labels=labels)
    for values, numbers in family["samples"]:
        single.add_metric(values, numbers[0])
    return single


def _cumulative(counts: list[float]) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket all that is not above its bound."""
    buckets, total = [], 0.0
    for bound, count in zip((*map(str, DURATION_BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def exposition(families: Snapshot, accept: str) -> tuple[bytes, str]:
    """Return the page for a scrape that sent this ``Accept``, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
