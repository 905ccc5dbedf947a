"""Metrics: the numbers of several processes as one page, in which nothing that grows ever falls."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families

from gateway.counters import DURATION_BUCKETS_S, Counters
from gateway.telemetry import Snapshot, added_up, counted, exposition, only_growing, snapshot


def process(reads: int, age_s: float, flights: int, *durations: float) -> Snapshot:
    """Return what one process would send, through JSON as it travels."""
    counters = Counters()
    counters.counter("gateway_reads_total", "Reads.", ["route", "outcome"]).cell("top", "hit")[0] += reads
    for seconds in durations:
        counters.histogram("gateway_read_seconds", "How long.", ["route"]).durations("top").observe(seconds)
    counters.gauge("gateway_snapshot_age_seconds", "Oldest.", lambda: {(): age_s}, over_workers="max")
    counters.gauge("gateway_flights", "Now.", lambda: {("a",): flights}, labels=["kind"])
    sent: Snapshot = json.loads(json.dumps(snapshot(counters)))
    return sent


def samples(page: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counters_and_histograms_are_summed_and_gauges_as_each_says() -> None:
    page, content_type = exposition(added_up([process(3, 1.5, 2, 0.0001, 0.003), process(4, 0.5, 5, 9.0)]), "")
    assert content_type.startswith("text/plain; version=0.0.4")
    found = samples(page)
    assert found["gateway_reads_total", ("hit", "top")] == 7
    assert found["gateway_snapshot_age_seconds", ()] == 1.5
    assert found["gateway_flights", ("a",)] == 7
    assert found["gateway_read_seconds_count", ("top",)] == 3
    assert found["gateway_read_seconds_sum", ("top",)] == 9.0031
    buckets = {key[1][0]: value for key, value in found.items() if key[0] == "gateway_read_seconds_bucket"}
    assert list(buckets) == [*map(str, DURATION_BUCKETS_S), "+Inf"]
    assert (buckets["0.0005"], buckets["0.005"], buckets["2.5"], buckets["+Inf"]) == (1, 2, 2, 3)


def test_series_that_only_one_process_has_are_kept() -> None:
    one = process(3, 1, 0)
    other = process(1, 1, 0, 0.1)
    other["gateway_reads_total"]["samples"].append((["rank", "miss"], [2.0]))
    found = samples(exposition(added_up([one, other]), "")[0])
    assert (found["gateway_reads_total", ("hit", "top")], found["gateway_reads_total", ("miss", "rank")]) == (4, 2)


def test_of_a_process_that_ended_only_what_grows_still_counts() -> None:
    found = samples(exposition(added_up([only_growing(process(3, 9, 9, 0.1)), process(4, 1, 1)]), "")[0])
    assert found["gateway_reads_total", ("hit", "top")] == 7
    assert found["gateway_read_seconds_count", ("top",)] == 1
    assert (found["gateway_flights", ("a",)], found["gateway_snapshot_age_seconds", ()]) == (1, 1)


def test_what_was_counted_is_told_without_looking_at_the_gauges() -> None:
    def never() -> dict[tuple[str, ...], float]:
        raise AssertionError

    counters = Counters()
    counters.counter("gateway_reads_total", "Reads.").add()
    counters.gauge("gateway_flights", "Now.", never)
    assert list(counted(counters)) == ["gateway_reads_total"]


def test_adding_up_changes_none_of_the_snapshots() -> None:
    one = process(3, 1, 1)
    added_up([one, process(4, 1, 1)])
    assert one == process(3, 1, 1)


def test_openmetrics_is_answered_to_who_asks_for_it() -> None:
    page, content_type = exposition(added_up([process(1, 1, 1)]), "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
