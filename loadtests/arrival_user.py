"""ArrivalUser: a Locust user that is a whole generator with its share of the rate, not one slow client.

Knows: Locust's User and statistics.
Must not know: verdicts.

One user a process is what helps (``--processes N --users N``): each keeps its share over many connections.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from locust import User, task
from locust.stats import RequestStats, StatsEntry, StatsError

from loadtests import green, reads
from loadtests.arrivals import Schedule
from loadtests.driver import Driver
from loadtests.reads import KnownMember, Mix
from loadtests.suite import Suite
from loadtests.tally import Route, Tally
from loadtests.wire import address_of

METHOD = "GET"


class ArrivalUser(User):
    """Send the suite's mix at this user's share of the rate, once; then wait to be stopped."""

    abstract = True
    suite: Suite
    weights: ClassVar[Mapping[str, float]]
    boards: int | None = 1
    """How many of the gateway's boards are read; None: all, one after the other."""
    burst_s: float = 0.0
    """Requests come in bursts this far apart; 0: evenly."""

    @task
    def drive(self) -> None:
        """Run the whole schedule."""
        environment = self.environment
        options = self.suite.options(environment)
        share, of = self._share()
        tally = Tally(reads.ROUTES)
        self.suite.pace_of(share, tally.pace)
        mix = self._mix(options.members, Random(share), check=not options.calibrating)
        driver = Driver(
            address_of(str(self.host)),
            Schedule(options.rate, options.seconds, share, of, max(1, round(options.rate * self.burst_s))),
            iter(mix),
            tally,
            connections=max(1, options.connections // of),
            learn=mix.learn,
        )
        driver.run(lambda: green.sleep(0), lambda: flush(environment.stats, tally))
        while True:
            green.sleep(1)

    def _share(self) -> tuple[int, int]:
        """Return which share of how many this user drives, from the worker's number and its own within it."""
        parsed: Any = self.environment.parsed_options
        of = max(1, parsed.num_users or 1)
        workers = max(1, parsed.processes or 1)
        worker = max(0, getattr(self.environment.runner, "worker_index", 0))
        return (self.suite.next_user() * workers + worker) % of, of

    def _mix(self, members_file: str | None, random: Random, *, check: bool) -> Mix:
        url = str(self.host)
        members: dict[str, Sequence[KnownMember]]
        if members_file:
            told = json.loads(Path(members_file).read_text())
            members = {board: [KnownMember(*row) for row in rows] for board, rows in told.items()}
        else:
            asks_members = self.weights.keys() & {reads.RANK, reads.NEIGHBORS}
            boards = reads.boards_of(url)[: self.boards]
            members = {board: reads.members_of(url, board) if asks_members else [] for board in boards}
        return Mix(url, list(members), members, self.weights, random, in_turn=self.boards is None, check=check)


def flush(stats: RequestStats, tally: Tally) -> None:
    """Move what the tally saw since the last call into Locust's statistics, a batch a route."""
    for name, route in tally.take().items():
        entry = entry_of(stats, name, route)
        stats.entries[(name, METHOD)].extend(entry)
        stats.total.extend(entry)
        for reason, count in route.failures.items():
            _count_errors(stats, name, reason, count)


def entry_of(stats: RequestStats, name: str, route: Route) -> StatsEntry:
    """Return a batch of one route as an entry that Locust's can be extended with."""
    entry = StatsEntry(stats, name, METHOD)
    entry.num_requests = sum(route.buckets.values())
    entry.num_failures = sum(route.failures.values())
    entry.total_response_time = round(route.total_ms)
    entry.min_response_time = int(route.least_ms)
    entry.max_response_time = math.ceil(route.most_ms)
    entry.total_content_length = route.content_bytes
    entry.response_times = dict(route.buckets)  # type: ignore[arg-type]  # finer than whole ms: see suite
    entry.num_reqs_per_sec = dict(route.by_second)
    entry.num_fail_per_sec = dict(route.failed_by_second)
    entry.last_request_timestamp = float(max(route.by_second, default=int(time.time())))
    return entry


def _count_errors(stats: RequestStats, name: str, reason: str, count: int) -> None:
    key = StatsError.create_key(METHOD, name, reason)
    if key not in stats.errors:
        stats.errors[key] = StatsError(METHOD, name, reason)
    error = stats.errors[key]
    error.occurred()
    error.occurrences += count - 1
