"""What the gateway says of itself on its admin address.

Knows: the Prometheus text format and the names of the gateway's metrics.
Must not know: the load, or what is to be concluded.
"""

from __future__ import annotations

import math
import urllib.request
from collections.abc import Mapping
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from loadtests.latencies import upper_bound_of

Samples: TypeAlias = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""(name, sorted labels) → value."""

DURATIONS = "gateway_read_duration_seconds"


def scrape(url: str) -> Samples:
    """Read all samples from an admin address (``http://host:port``)."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        return samples_of(answer.read().decode())


def samples_of(text: str) -> Samples:
    """Return the samples of a page in the text format."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def since(before: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], after: Samples) -> Samples:
    """Return by how much each sample grew."""
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def sum_of(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum over all samples of this name that carry these labels; 0 if there are none."""
    wanted = set(labels.items())
    return sum(value for (found, has), value in samples.items() if found == name and wanted <= set(has))


def median_ms(samples: Samples, route: str) -> float:
    """Return the upper bound of the bucket that holds the server's median of one route, in ms; NaN if unknown."""
    cumulative: dict[float, float] = {}
    for (name, labels), value in samples.items():
        told = dict(labels)
        if name == f"{DURATIONS}_bucket" and told.get("route") == route:
            bound = float(told["le"])
            cumulative[bound] = cumulative.get(bound, 0.0) + value
    median_s = upper_bound_of(cumulative, 0.5)
    return math.nan if math.isnan(median_s) else median_s * 1000
