"""``make load SCENARIO=…``: set everything up, calibrate the generator, run one Locust suite, count Redis's commands.

Knows: the scenarios, what each needs, Locust's command line.
Must not know: how requests are made, or how a run is judged.

With ``--host`` nothing is set up but the constant endpoint, and the load goes there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests import reads
from loadtests.answers import Prepared
from loadtests.config import GatewayConfig
from loadtests.nodes import Nodes
from loadtests.programs import end_on_sigterm
from loadtests.rows import rows
from loadtests.setup import ROOT, Served, Setup, prepared
from loadtests.verdict import calibrated_rate
from loadtests.wire import segment

DEMO_CSV = ROOT / "gateway" / "demo" / "data" / "package-downloads" / "2026-03.csv"
DEMO_BOARD = "downloads"
TTL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What one suite needs. ``rate`` None: closed loop with ``users``; else that many generator processes."""

    boards: Sequence[str]
    members: int = 0
    """Synthetic members of each board; 0: the demo's board."""
    rate: float | None = None
    seconds: float = 60
    users: int = 1
    connections: int = 100
    writes: bool = True
    burst: bool = False
    """All boards are read, and no members."""


SCENARIOS = {
    "game_client": Scenario(boards=[DEMO_BOARD], seconds=30, users=100),
    "mixed_10k": Scenario(boards=["large"], members=1_000_000, rate=10_000),
    "cdn_pull": Scenario(
        boards=[f"board-{number}" for number in range(100)],
        members=1000,
        rate=200,
        seconds=30,
        connections=16,
        burst=True,
    ),
    "outage": Scenario(boards=["large"], members=100_000, rate=1000, seconds=45),
}


def prepare(setup: Setup, scenario: Scenario, options: argparse.Namespace) -> Served:
    """Fill the boards, start the gateway over them, and let scores change."""
    setup.nodes.fill_all(
        (f"lb:{board}", rows(options.members) if options.members else demo_rows()) for board in scenario.boards
    )
    gateway = setup.gateway(GatewayConfig(boards=scenario.boards, workers=options.workers))
    if scenario.writes:
        setup.writer(scenario.boards[0])
    return gateway


def demo_rows() -> list[tuple[str, int]]:
    """Return the rows of the demo's board."""
    lines = DEMO_CSV.read_text().splitlines()[1:]
    return [(member, int(score)) for member, score in (line.rsplit(",", 1) for line in lines)]


def command(name: str, host: str, options: argparse.Namespace, *more: str) -> list[str]:
    """Return the Locust command line of one run."""
    scenario = SCENARIOS[name]
    # fmt: off
    line = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / f"{name}.py"), "--headless",
            "--only-summary", "--loglevel", "WARNING", "--host", host, "--seconds", str(options.seconds),
            "--users", str(options.users), "--spawn-rate", str(options.users)]
    # fmt: on
    if scenario.rate is not None:
        line += ["--rate", str(options.rate), "--connections", str(options.connections)]
        line += ["--processes", str(options.users)] if options.users > 1 else []
    return [*line, *more]


def known_members(setup: Setup, host: str, scenario: Scenario) -> Path:
    """Write the members to ask for, so that learning them is no part of what Redis counts."""
    boards = reads.boards_of(host)
    if scenario.burst:
        told: dict[str, list[list[object]]] = {board: [] for board in boards}
    else:
        told = {boards[0]: [[known.member, 0] for known in reads.members_of(host, boards[0])]}
    path = setup.programs.folder / "members.json"
    path.write_text(json.dumps(told))
    return path


def calibrate(setup: Setup, name: str, host: str, options: argparse.Namespace) -> float:
    """Return the rate that this very generator reaches against a constant endpoint, up to what is needed.

    The endpoint sends what the gateway sends, without its work; whatever is not a top is a rank.
    """
    board = SCENARIOS[name].boards[0] if not options.host else reads.boards_of(host)[0]
    top = prepared(host, f"/v1/leaderboards/{segment(board)}/top")
    entries = json.loads(top.body)["entries"]
    rank = prepared(host, f"/v1/leaderboards/{segment(board)}/members/{segment(entries[0]['member'])}")
    endpoint = setup.constant(("/top", top), ("", Prepared(200, rank.headers, rank.body)))
    members = setup.programs.folder / "calibration-members.json"
    members.write_text(json.dumps({board: [[entry["member"], 0] for entry in entries]}))
    report = setup.programs.folder / "calibration.json"
    wanted = argparse.Namespace(**{**vars(options), "rate": options.rate * 1.6, "seconds": min(5.0, options.seconds)})
    html = setup.programs.folder / "calibration.html"
    # fmt: off
    line = command(name, endpoint.url, wanted, "--calibrating", "--members", str(members), "--report", str(report),
                   "--html", str(html))
    # fmt: on
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=120)
    setup.programs.stop(endpoint.process)
    return calibrated_rate(json.loads(report.read_text()))


def load(name: str, host: str, options: argparse.Namespace, *more: str) -> int:
    """Run the suite and return its exit status; its report is ``reports/<name>.json``."""
    report, html, raw = (options.reports / f"{name}{end}" for end in (".json", ".html", "-locust"))
    # With a file for its own figures, Locust does not print them under ours.
    line = command(name, host, options, "--report", str(report), "--html", str(html), "--json-file", str(raw), *more)
    return subprocess.run(line, cwd=ROOT, check=False).returncode


def counted(name: str, options: argparse.Namespace, ranges: int) -> str:
    """Add what Redis counted to the report, and return it as a line."""
    path = options.reports / f"{name}.json"
    told: dict[str, Any] = json.loads(path.read_text())
    neighbors = told["routes"].get(reads.NEIGHBORS, {"requests": 0, "failures": {}})
    windows = neighbors["requests"] - sum(neighbors["failures"].values())
    allowed = len(SCENARIOS[name].boards) * options.workers * (options.seconds / TTL_S + 1)
    for_tops = max(0, ranges - windows)
    told["range_commands"] = {"all": ranges, "neighbors": windows, "top": for_tops, "per_ttl": for_tops / allowed}
    path.write_text(json.dumps(told, indent=1))
    return (
        f"Redis executed {ranges:,} range commands: {windows:,} for neighbors, {for_tops:,} for tops, "
        f"at most {allowed:,.0f} at one per board, worker and TTL"
    )


def run(name: str, options: argparse.Namespace) -> int:
    """Set up, calibrate, load, count; return the exit status."""
    scenario = SCENARIOS[name]
    with Setup() as setup:
        more: list[str] = []
        nodes: Nodes | None = None
        host = options.host
        if not host:
            gateway = prepare(setup, scenario, options)
            nodes, host = setup.nodes, gateway.url
            more += ["--metrics", gateway.admin_url]
            if name == "outage":
                more += ["--freeze", ",".join(str(node.process.pid) for node in nodes.all)]
        if scenario.rate is not None:
            reached = calibrate(setup, name, host, options)
            print(f"calibration: the generator alone reaches at least {reached:,.0f}/s", flush=True)
            more += ["--calibrated", str(reached), "--members", str(known_members(setup, host, scenario))]
        before = nodes.range_commands() if nodes else 0
        status = load(name, host, options, *more)
        if nodes and scenario.rate is not None and (options.reports / f"{name}.json").exists():
            print(counted(name, options, nodes.range_commands() - before))
    return status


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line, with the scenario's own figures where none were given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--host", default="", help="a gateway that runs already; else one is set up")
    parser.add_argument("--users", type=int, help="players, or generator processes where a rate is kept")
    parser.add_argument("--rate", type=float, help="reads per second")
    parser.add_argument("--seconds", type=float, help="length of the run")
    parser.add_argument("--connections", type=int, help="connections of all generators")
    parser.add_argument("--members", type=int, help="members of each synthetic board")
    parser.add_argument("--workers", type=int, default=1, help="workers of the gateway")
    parser.add_argument("--reports", type=Path, default=ROOT / "reports", help="where the reports go")
    options = parser.parse_args(arguments)
    scenario = SCENARIOS[options.scenario]
    for name in ("users", "rate", "seconds", "connections", "members"):
        if getattr(options, name) is None:
            setattr(options, name, getattr(scenario, name))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one scenario."""
    options = parsed(arguments)
    end_on_sigterm()
    options.reports.mkdir(parents=True, exist_ok=True)
    (options.reports / f"{options.scenario}.json").unlink(missing_ok=True)
    return run(options.scenario, options)


if __name__ == "__main__":
    sys.exit(main())
