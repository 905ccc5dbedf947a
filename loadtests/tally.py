"""What one generator process has seen: latencies, failures and bytes by route, and how the rate was kept by second.

Knows: routes by the names of their groups, and reasons from a fixed set.
Must not know: Locust, sockets, members (a member in a name would make a row of its own).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from loadtests.latencies import bucket_ms


@dataclass(slots=True)
class Route:
    """One group of requests since the last ``take``."""

    buckets: dict[float, int] = field(default_factory=lambda: defaultdict(int))
    failures: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_second: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    failed_by_second: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    total_ms: float = 0.0
    least_ms: float = float("inf")
    most_ms: float = 0.0
    content_bytes: int = 0


@dataclass(slots=True)
class Pace:
    """How one process kept its share of the rate, by second of the run, and what share of a core that took."""

    asked: dict[int, int] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    busy: dict[int, float] = field(default_factory=dict)
    done: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as plain lists, which every message format can carry."""
        return {
            "asked": sorted(self.asked.items()),
            "answered": sorted(self.answered.items()),
            "busy": sorted(self.busy.items()),
            "done": self.done,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pace:
        """Read what ``as_json`` returned."""
        return cls(
            {int(second): count for second, count in data["asked"]},
            {int(second): count for second, count in data["answered"]},
            {int(second): share for second, share in data["busy"]},
            bool(data["done"]),
        )


class Usage:
    """Notes which share of a core this process used in each second of the run."""

    def __init__(self, pace: Pace) -> None:
        self._busy = pace.busy
        self._at, self._used = 0.0, process_time()

    def note(self, elapsed: float) -> None:
        """Note the share since the last whole second, once a second."""
        if elapsed - self._at < 1.0:
            return
        used = process_time()
        self._busy[int(self._at)] = (used - self._used) / (elapsed - self._at)
        self._at, self._used = elapsed, used


class Tally:
    """Counts by route. The routes are declared, so that their number cannot grow with what is requested."""

    def __init__(self, routes: tuple[str, ...]) -> None:
        self.routes = {name: Route() for name in routes}
        self.pace = Pace()

    def answered(self, route: str, latency_s: float, at: float, size: int, failure: str | None = None) -> None:
        """Count one request that ended, ``at`` wall seconds; ``failure`` is a reason from a fixed set."""
        counts = self.routes[route]
        latency_ms = latency_s * 1000
        counts.buckets[bucket_ms(latency_ms)] += 1
        counts.total_ms += latency_ms
        counts.least_ms = min(counts.least_ms, latency_ms)
        counts.most_ms = max(counts.most_ms, latency_ms)
        counts.content_bytes += size
        second = int(at)
        counts.by_second[second] += 1
        if failure is not None:
            counts.failures[failure] += 1
            counts.failed_by_second[second] += 1

    def take(self) -> dict[str, Route]:
        """Return the routes that saw something since the last call, and begin anew."""
        seen = {name: counts for name, counts in self.routes.items() if counts.buckets}
        for name in seen:
            self.routes[name] = Route()
        return seen
