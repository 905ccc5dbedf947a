"""A Locust suite: options, generator users, collected figures, and the verdict with which every run ends.

Knows: Locust's events, runners and statistics.
Must not know: how requests are sent, or what the verdict's rules are.

Under ``--processes`` the locust file is loaded once and the process forks: the parent only collects.
"""

from __future__ import annotations

import json
import logging
import math
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import locust.stats
from locust import events
from locust.env import Environment
from locust.event import EventHook
from locust.runners import WorkerRunner

from loadtests import green, metrics, reads
from loadtests.latencies import bucket_ms, percentile
from loadtests.tally import Pace, Usage
from loadtests.verdict import Claim, Measured, judge, report

logger = logging.getLogger("loadtests")

SERVER_ROUTES = {reads.TOP: "top", reads.TOP_CONDITIONAL: "top", reads.RANK: "member", reads.NEIGHBORS: "neighbors"}
"""Which of the gateway's own routes each of our groups is timed under."""

LATEST_S = 30
"""How long after its last request is due a run is given up, if its generators have not said that they are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run was asked to do, beyond Locust's own options."""

    rate: float
    seconds: float
    connections: int
    calibrated: float | None
    calibrating: bool
    metrics: str | None
    report: str | None
    members: str | None


class Suite:
    """One locust file's frame. Make one at import; it listens to Locust's events from then on."""

    def __init__(self, name: str, claim: Claim, *, connections: int = 100, seconds: float = 60) -> None:
        self.name = name
        self.claim = claim
        self._defaults = (connections, seconds)
        self._paces: dict[str, Pace] = {}
        self._own = 0
        self._before: metrics.Samples = {}
        locust.stats.bucket_response_time = bucket_ms  # type: ignore[assignment]  # its documented way to finer buckets
        listen(events.init_command_line_parser, self._add_options)
        listen(events.init, self._prepare)
        listen(events.test_start, self._begin)
        listen(events.report_to_master, self._tell)
        listen(events.worker_report, self._hear)
        listen(events.quitting, self._end)

    def pace_of(self, user: int, pace: Pace) -> None:
        """Take the pace of one generator of this process; it goes on being filled."""
        self._paces[f"own-{user}"] = pace

    def next_user(self) -> int:
        """Return the number of the next generator in this process, from 0."""
        self._own += 1
        return self._own - 1

    def options(self, environment: Environment) -> Options:
        """Return the options of this run."""
        told = vars(environment.parsed_options or object())
        return Options(**{name: told[name] for name in Options.__dataclass_fields__})

    def _add_options(self, parser: ArgumentParser, **_: Any) -> None:
        connections, seconds = self._defaults
        group = parser.add_argument_group("leaderboard gateway")
        add = group.add_argument
        add("--rate", type=float, default=self.claim.rate or 0.0, help="requests per second over all processes")
        add("--seconds", type=float, default=seconds, help="how long requests are sent; the run ends by itself")
        add("--connections", type=int, default=connections, help="connections over all generators")
        add("--calibrated", type=float, default=None, help="rate this generator reached against a constant endpoint")
        add("--calibrating", action="store_true", help="this is that run: do not judge, do not check bodies")
        add("--metrics", default=None, help="the gateway's admin address, to compare its own durations with ours")
        add("--report", default=None, help="where to write the figures as JSON")
        add("--members", default=None, help='JSON file {"board": [["member", rank or 0], …]} instead of asking the API')

    def _prepare(self, environment: Environment, runner: Any, **_: Any) -> None:
        if self.claim.rate is None:
            green.spawn(self._watch_own_use)
        options = environment.parsed_options
        if options is None or isinstance(runner, WorkerRunner):
            return
        if options.html_file is None:
            options.html_file = f"reports/{self.name}.html"

    def _begin(self, environment: Environment, **_: Any) -> None:
        if isinstance(environment.runner, WorkerRunner):
            return
        options = self.options(environment)
        if options.metrics:
            self._before = metrics.scrape(options.metrics)
        green.spawn(self._stop_when_done, environment, options)

    def _watch_own_use(self) -> None:
        """Note what share of a core this process uses; generators with a schedule note it themselves."""
        self._paces["process"] = pace = Pace()
        usage = Usage(pace)
        began = time.monotonic()
        while True:
            green.sleep(1.0)
            usage.note(time.monotonic() - began)

    def _stop_when_done(self, environment: Environment, options: Options) -> None:
        """End the run once every generator has finished, or soon after it should have."""
        parsed = environment.parsed_options
        users = max(1, (parsed.num_users if parsed else None) or 1)
        until = time.monotonic() + options.seconds + (LATEST_S if self.claim.rate is not None else 0)
        while time.monotonic() < until and sum(pace.done for pace in self._paces.values()) < users:
            green.sleep(0.2)
        runner = environment.runner
        if runner is not None and parsed is not None and parsed.headless:
            runner.quit()
        elif runner is not None:
            runner.stop()

    def _tell(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        data["paces"] = {f"{client_id}-{key}": pace.as_json() for key, pace in self._paces.items()}

    def _hear(self, data: Mapping[str, Any], **_: Any) -> None:
        self._paces.update({key: Pace.from_json(pace) for key, pace in data.get("paces", {}).items()})

    def _end(self, environment: Environment, **_: Any) -> None:
        if isinstance(environment.runner, WorkerRunner):
            environment.process_exit_code = 0  # the parent judges
            return
        options = self.options(environment)
        claim = replace(self.claim, rate=options.rate) if self.claim.rate is not None else self.claim
        measured = self._measured(environment, options)
        if options.report:
            path = Path(options.report)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(report(self.name, claim, measured), indent=1))
        if options.calibrating:
            environment.process_exit_code = 0
            return
        verdict = judge(claim, measured)
        print(summary(measured, options.seconds))
        for remark in verdict.remarks:
            print(remark)
        print(verdict.line(self.name), flush=True)
        environment.process_exit_code = verdict.exit_status

    def _measured(self, environment: Environment, options: Options) -> Measured:
        entries = {name: entry for (name, _), entry in environment.stats.entries.items() if entry.num_requests}
        return Measured(
            latencies={
                name: {float(bound): count for bound, count in entry.response_times.items()}
                for name, entry in entries.items()
            },
            failures=failures_of(environment),
            paces=list(self._paces.values()),
            calibrated_rate=options.calibrated,
            server_p50_ms=self._server_medians(options),
        )

    def _server_medians(self, options: Options) -> dict[str, float]:
        if not options.metrics:
            return {}
        try:
            grown = metrics.since(self._before, metrics.scrape(options.metrics))
        except OSError as error:
            logger.warning("the gateway's own durations cannot be compared: %s", error)
            return {}
        medians = {name: metrics.median_ms(grown, route) for name, route in SERVER_ROUTES.items()}
        return {name: median for name, median in medians.items() if not math.isnan(median)}


def summary(measured: Measured, seconds: float) -> str:
    """Return reads per second and percentiles by route, as lines of text."""
    lines = [f"{'route':<24}{'reads':>9}{'reads/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'failed':>8}"]
    for name, buckets in measured.latencies.items():
        reads_made, failed = sum(buckets.values()), sum(measured.failures.get(name, {}).values())
        p50, p99 = percentile(buckets, 0.5), percentile(buckets, 0.99)
        lines.append(f"{name:<24}{reads_made:>9,}{reads_made / seconds:>10,.1f}{p50:>9.1f}{p99:>9.1f}{failed:>8,}")
    return "\n".join(lines)


def failures_of(environment: Environment) -> dict[str, dict[str, int]]:
    """Return how often each route failed for each reason, as Locust counted it."""
    failures: dict[str, dict[str, int]] = {}
    for error in environment.stats.errors.values():
        reasons = failures.setdefault(error.name, {})
        reason = str(error.error)
        reasons[reason] = reasons.get(reason, 0) + error.occurrences
    return failures


def listen(hook: EventHook, listener: Callable[..., object]) -> None:
    """Call ``listener`` with keyword arguments whenever the event fires."""
    hook.add_listener(listener)  # type: ignore[no-untyped-call]
