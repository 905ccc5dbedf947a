"""Redis freezes in the middle of a constant load: the top goes on, ranks say so in time, and both recover.

Knows: the gateway's routes, the processes to stop and when.
Must not know: how the gateway is set up, or what a right answer costs.

``--freeze PID[,PID]`` names the Redis processes to stop (SIGSTOP) for the middle third of the run. ``make load
SCENARIO=outage`` knows them; without the option the outage is yours to make.
"""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser
from typing import Any, ClassVar

from locust import events
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtests import green, reads
from loadtests.arrival_user import ArrivalUser
from loadtests.suite import Suite, listen
from loadtests.verdict import Claim

AWAY = frozenset({"status 503", "status 504"})
BUDGET_MS = 500.0
"""``request_budget_ms``: what Redis may cost one request. What is beyond it is the network's and the queues'."""


class OutageReads(ArrivalUser):
    """The same mix as ``mixed_10k`` at a rate that one core serves at leisure."""

    suite = Suite(
        "outage",
        Claim(
            rate=1_000,
            p99_ms={
                reads.TOP: 50.0,
                reads.TOP_CONDITIONAL: 50.0,
                reads.RANK: BUDGET_MS + 100,
                reads.NEIGHBORS: BUDGET_MS + 100,
            },
            allowed_failures={reads.RANK: AWAY, reads.NEIGHBORS: AWAY},
        ),
        seconds=45,
    )
    weights: ClassVar = {reads.TOP: 45, reads.TOP_CONDITIONAL: 45, reads.RANK: 7, reads.NEIGHBORS: 3}


def _add_freeze(parser: ArgumentParser, **_: Any) -> None:
    parser.add_argument("--freeze", default="", help="Redis processes to stop for the middle third, PID[,PID]")


def _plan(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, WorkerRunner) or environment.parsed_options is None:
        return
    pids = [int(pid) for pid in environment.parsed_options.freeze.split(",") if pid]
    if pids:
        green.spawn(_freeze, pids, environment.parsed_options.seconds / 3)


def _freeze(pids: list[int], third_s: float) -> None:
    green.sleep(third_s)
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        green.sleep(third_s)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


listen(events.init_command_line_parser, _add_freeze)
listen(events.test_start, _plan)
