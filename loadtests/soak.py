"""``make soak``: a mixed load with a fault every minute, and at the end whether anything grew, erred or was said.

Knows: the load, the faults, where samples come from.
Must not know: what is too much (``steadiness``), how faults are committed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from loadtests import metrics, nodes, steadiness
from loadtests.config import GatewayConfig
from loadtests.faults import AWAY_S, Faults
from loadtests.programs import Missing, end_on_sigterm, program, until
from loadtests.rows import member
from loadtests.setup import ROOT, Served, Setup

REPORT = ROOT / "reports" / "soak.json"
STILL, MOVING = "still", "moving"
SERVICE = "leaderboards"
CHECKED = 2000
"""Members whose rank is known beforehand and compared in every answer."""


def sample(gateway: Served) -> dict[str, float]:
    """Return what of the gateway must not grow, summed over its workers, and how much it has read."""
    told = metrics.scrape(gateway.admin_url)
    return {
        "at": time.time(),
        "resident_mib": metrics.sum_of(told, "gateway_worker_resident_bytes") / 2**20,
        "open_files": metrics.sum_of(told, "gateway_worker_open_files"),
        "tasks": metrics.sum_of(told, "gateway_worker_tasks"),
        "reads": metrics.sum_of(told, "gateway_reads_total"),
        "flights": metrics.sum_of(told, "gateway_flights"),
    }


def known_ranks(setup: Setup, size: int, folder: Path) -> Path:
    """Write the members to ask for: on the board that stands still, with the ranks that the primary gives them."""
    step = max(1, size // CHECKED)
    chosen = [member(number) for number in range(0, size, step)]
    with closing(setup.nodes.primary.client()) as client:
        pipeline = client.pipeline(transaction=False)
        for name in chosen:
            pipeline.zrevrank(f"lb:{STILL}", name)
        indexes: list[Any] = pipeline.execute()
    ranks = [[name, index + 1] for name, index in zip(chosen, indexes, strict=True)]
    path = folder / "members.json"
    path.write_text(json.dumps({STILL: ranks, MOVING: [[name, 0] for name in chosen]}))
    return path


def load(gateway: Served, members: Path, folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start the load; its report is ``soak_reads.json`` in the folder."""
    seconds = options.minutes * 60
    # fmt: off
    command = [
        sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "soak_reads.py"), "--headless",
        "--only-summary", "--host", gateway.url, "--rate", str(options.rate), "--seconds", str(seconds),
        "--users", "1", "--members", str(members), "--report", str(folder / "soak_reads.json"),
        "--html", str(options.report.with_suffix(".html")),
    ]
    # fmt: on
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fault_times(seconds: float, every_s: float) -> list[float]:
    """Return when faults are due: in the middle of each interval, the last with more than half of one to recover."""
    return [every_s * (number + 0.5) for number in range(int(seconds / every_s)) if every_s * (number + 1) < seconds]


def watch(gateway: Served, faults: Faults, running: subprocess.Popen[bytes], options: argparse.Namespace) -> Any:
    """Commit a fault at every interval and sample between them, until the load is over."""
    samples: list[dict[str, float]] = []
    committed: list[str] = []
    idle = sample(gateway)["reads"]
    until(lambda: sample(gateway)["reads"] > idle + options.rate, "the load running")  # what it opens is no growth
    began = time.monotonic()
    due = fault_times(options.minutes * 60, options.fault_s)
    while True:
        told = sample(gateway)
        if running.poll() is not None:  # and its connections are closed: no sample of the load
            return samples, committed
        samples.append(told)
        elapsed = time.monotonic() - began
        if due and due[0] <= elapsed < options.minutes * 60 - options.fault_s / 2:
            del due[0]
            committed.append(faults.next())
            print(f"… {committed[-1]}", flush=True)
        time.sleep(min(options.fault_s / 10, 5.0))


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Run it all and return the report."""
    with Setup() as setup:
        for board in (STILL, MOVING):
            setup.board(board, options.members)
        members = known_ranks(setup, options.members, setup.programs.folder)
        port = 0 if options.fixed else nodes.start_sentinel(setup.programs, setup.nodes.primary, SERVICE)
        config = GatewayConfig(
            boards=[STILL, MOVING],
            workers=options.workers,
            sentinel_port=port,
            service=SERVICE,
            tables={"log": {"format": "json", "level": "info"}},
        )
        gateway = setup.gateway(config)
        setup.writer(MOVING)
        faults = Faults(setup.programs, setup.nodes, sentinel_port=port, service=SERVICE, away_s=options.away_s)
        running = load(gateway, members, setup.programs.folder, options)
        try:
            samples, committed = watch(gateway, faults, running, options)
        finally:
            running.terminate()
            running.wait()
        setup.programs.stop(gateway.process)
        log = setup.programs.log(gateway.name).read_text().splitlines()
        told: dict[str, Any] = json.loads((setup.programs.folder / "soak_reads.json").read_text())
    why = steadiness.reasons(told, samples, log)
    if gateway.process.returncode != 0:
        why.append(f"the gateway ended with status {gateway.process.returncode}")
    return {
        "minutes": options.minutes,
        "outcome": "failed" if why else "passed",
        "reasons": why,
        "right_share": steadiness.right_share(told),
        "faults": committed,
        "routes": told["routes"],
        "samples": samples,
        "log_lines": len(log),
    }


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--fault-s", type=float, default=60, help="a fault every so many seconds")
    parser.add_argument("--away-s", type=float, default=AWAY_S, help="how long a failing node is away")
    parser.add_argument("--rate", type=float, default=500, help="reads per second")
    parser.add_argument("--members", type=int, default=100_000, help="members of each of the two boards")
    parser.add_argument("--workers", type=int, default=2, help="workers of the gateway")
    parser.add_argument("--fixed", action="store_true", help="a fixed primary, frozen now and then, and no Sentinel")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    if not options.fixed:
        try:
            program("redis-sentinel")
        except Missing as missing:
            print(f"{missing}: the primary is frozen instead of failed over")
            options.fixed = True
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print the verdict, write the report."""
    options = parsed(arguments)
    end_on_sigterm()
    options.report.parent.mkdir(parents=True, exist_ok=True)
    report = soak(options)
    options.report.write_text(json.dumps(report, indent=1))
    first, last = report["samples"][0], report["samples"][-1]
    for name in ("resident_mib", "open_files", "tasks"):
        print(f"{name}: {first[name]:,.1f} at first, {last[name]:,.1f} at last")
    print(f"{report['right_share']:.4%} of ranks answered right, {len(report['faults'])} faults")
    for reason in report["reasons"]:
        print(reason)
    print(f"verdict soak: {report['outcome'].upper()}")
    return 0 if report["outcome"] == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
