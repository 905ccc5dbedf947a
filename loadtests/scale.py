"""How time and memory grow: with the size of a board, with the number of boards, with the number of connections.

Knows: what is varied, what is read at each step.
Must not know: how a reading is taken.

Run it with ``python -m loadtests.scale``; it writes ``reports/scale.json``, and with ``--docs`` the table of
``docs/performance.md`` and ``docs/scale.png``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from loadtests import metrics
from loadtests.config import GatewayConfig
from loadtests.contest import why_missing
from loadtests.measure import Rounds, take_turns
from loadtests.nodes import Nodes
from loadtests.programs import Missing, end_on_sigterm
from loadtests.rows import rows
from loadtests.setup import ROOT, Served, Setup, prepared
from loadtests.table import replaced
from loadtests.wrk import Reading, Shot, fire

REPORT = ROOT / "reports" / "scale.json"
DOCUMENT = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "scale.png"
BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"

SIZES = (10_000, 100_000, 1_000_000)
HUGE = 10_000_000
BOARDS = (1, 10, 100, 1_000, 10_000)
CONNECTIONS = (1, 8, 64, 512, 5_000)
ROWS = 150
"""Members of each of many boards: more than a top holds."""

Point = dict[str, float]


def by_size(setup: Setup, options: argparse.Namespace) -> list[Point]:
    """Read ranks and neighbors on boards of growing size, the sizes in turn, and compare each with the smallest."""
    sizes = sorted({*options.sizes, *([HUGE] if options.huge else [])})
    for size in sizes:
        setup.board(f"of-{size}", size)
    gateway = setup.gateway(GatewayConfig(boards=[f"of-{size}" for size in sizes]))
    base = f"{gateway.url}/v1/leaderboards/of-{{}}/members/pkg-{{{{}}}}"
    ranks = {f"{size}": Shot(url=base.format(size), members=size) for size in sizes}
    neighbors = {name: replace(shot, url=f"{shot.url}/neighbors") for name, shot in ranks.items()}
    rank_rounds, neighbors_rounds = (_in_turn(setup, options, shots) for shots in (ranks, neighbors))
    points = []
    for size in sizes:
        memory: Any = setup.nodes.primary.client().memory_usage(f"lb:of-{size}", samples=100)
        point = size_point(f"{size}", f"{sizes[0]}", rank_rounds, neighbors_rounds)
        points.append({"members": size, **point, "redis_mib": memory / 2**20})
    setup.programs.stop(gateway.process)
    return points


def size_point(name: str, smallest: str, ranks: Rounds[Reading], neighbors: Rounds[Reading]) -> Point:
    """Return the figures of one size; the ratio is of ranks per second within rounds, against the smallest size."""
    ratio = ranks.ratio(name, smallest, lambda reading: reading.per_second)
    rank, around = middle_of(ranks.readings[name]), middle_of(neighbors.readings[name])
    return {
        "rank_per_s": rank.per_second,
        "rank_p50_ms": rank.p50_ms,
        "rank_ratio": ratio.median,
        "rank_ratio_least": ratio.least,
        "rank_ratio_most": ratio.most,
        "neighbors_per_s": around.per_second,
        "neighbors_p50_ms": around.p50_ms,
        "failed": sum(reading.failed for taken in (ranks, neighbors) for reading in taken.readings[name]),
    }


def by_boards(setup: Setup, options: argparse.Namespace) -> list[Point]:
    """Cache the tops of a growing number of boards, and see what a worker holds and how fast it answers."""
    fill_many(setup.nodes, max(options.boards))
    points = []
    for count in options.boards:
        names = [f"board-{number}" for number in range(count)]
        gateway = setup.gateway(GatewayConfig(boards=names, board={"ttl_ms": 600_000}))
        for name in names:
            prepared(gateway.url, f"/v1/leaderboards/{name}/top")
        top = _fire(setup, options, Shot(url=f"{gateway.url}/v1/leaderboards/{names[-1]}/top"))
        points.append({"boards": count, "resident_mib": resident_mib(gateway), "top_per_s": top.per_second})
        setup.programs.stop(gateway.process)
    return points


def fill_many(nodes: Nodes, count: int) -> None:
    """Fill boards ``board-0`` … with a few rows each."""
    nodes.fill_all((f"lb:board-{number}", rows(ROWS)) for number in range(count))


def by_connections(setup: Setup, options: argparse.Namespace) -> list[Point]:
    """Ask for the top over a growing number of connections."""
    setup.board("one", ROWS)
    gateway = setup.gateway(GatewayConfig(boards=["one"]))
    url = f"{gateway.url}/v1/leaderboards/one/top"
    points = []
    for count in options.connections:
        top = _fire(setup, options, Shot(url=url, connections=count))
        points.append(
            {
                "connections": count,
                "top_per_s": top.per_second,
                "p50_ms": top.p50_ms,
                "p99_ms": top.p99_ms,
                "resident_mib": resident_mib(gateway),
                "failed": top.failed,
            }
        )
    setup.programs.stop(gateway.process)
    return points


def _fire(setup: Setup, options: argparse.Namespace, shot: Shot) -> Reading:
    """Return the middle one of several readings."""
    return middle_of(_in_turn(setup, options, {"": shot}).readings[""])


def _in_turn(setup: Setup, options: argparse.Namespace, shots: Mapping[str, Shot]) -> Rounds[Reading]:
    takes = {name: partial(fire, shot, options.seconds, setup.programs.folder) for name, shot in shots.items()}
    return take_turns(takes, options.rounds)


def middle_of(readings: Sequence[Reading]) -> Reading:
    """Return the reading whose rate is the median, or next to it."""
    middle = median(reading.per_second for reading in readings)
    return min(readings, key=lambda reading: abs(reading.per_second - middle))


def resident_mib(gateway: Served) -> float:
    """Return what all workers of a gateway hold in memory."""
    return metrics.sum_of(metrics.scrape(gateway.admin_url), "gateway_worker_resident_bytes") / 2**20


def memory_of(boards: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return a worker's memory with one board, and what each further board adds."""
    if not boards:
        return {}
    first, last = boards[0], boards[-1]
    more = last["boards"] - first["boards"]
    per_board = (last["resident_mib"] - first["resident_mib"]) * 1024 / more if more else float("nan")
    return {"one_board_mib": first["resident_mib"], "per_board_kib": per_board}


STEPS: Mapping[str, Callable[[Setup, argparse.Namespace], list[Point]]] = {
    "size": by_size,
    "boards": by_boards,
    "connections": by_connections,
}


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run the steps that were asked for and return the report; a step that cannot be made is named.

    Steps that were not asked for stay in the report as they were measured last.
    """
    told: dict[str, Any] = {"at": {}, "missing": {}}
    if options.only and options.report.exists():
        told |= json.loads(options.report.read_text())
    for name, step in STEPS.items():
        if options.only and name not in options.only:
            continue
        print(f"… {name}", file=sys.stderr, flush=True)
        for part in (told, told["at"], told["missing"]):
            part.pop(name, None)
        try:
            with Setup(replicas=1) as setup:
                told[name] = step(setup, options)
            told["at"][name] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        except (Missing, RuntimeError, TimeoutError, OSError) as error:
            told["missing"][name] = why_missing(error)
    told["memory"] = memory_of(told.get("boards", []))
    return told


def tables(told: Mapping[str, Any]) -> str:
    """Return the points as Markdown tables."""
    blocks = [table(told[name]) for name in STEPS if told.get(name)]
    if len(told.get("size", ())) > 1:
        blocks.append(
            "Ranks per second with {members:,.0f} members, against {smallest:,.0f}, in turn: {rank_ratio:.2f} "
            "({rank_ratio_least:.2f}–{rank_ratio_most:.2f}).".format(
                **told["size"][-1], smallest=told["size"][0]["members"]
            )
        )
    if told["memory"]:
        blocks.append(
            "A worker holds {one_board_mib:,.0f} MiB with one board and {per_board_kib:,.1f} KiB more for each further "
            "board cached.".format(**told["memory"])
        )
    return "\n\n".join([*blocks, *(f"{name}: {why}" for name, why in told["missing"].items())])


def table(points: Sequence[Mapping[str, float]]) -> str:
    """Return points as one Markdown table, a column for each of their figures but the ends of a spread."""
    shown = [name for name in points[0] if not name.endswith(("_least", "_most"))]
    lines = ["| " + " | ".join(name.replace("_", " ") for name in shown) + " |", "| ---: " * len(shown) + "|"]
    lines += ["| " + " | ".join(_figure(point[name]) for name in shown) + " |" for point in points]
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.3g}"


def write_documents(told: Mapping[str, Any]) -> None:
    """Rewrite the generated tables of the document, and the chart."""
    from loadtests.chart import draw_growth

    DOCUMENT.write_text(replaced(DOCUMENT.read_text(), tables(told), begin=BEGIN, end=END))
    panels = {
        "reads/s by members of the board": ("size", "members", ("rank_per_s", "neighbors_per_s")),
        "MiB of a worker by boards cached": ("boards", "boards", ("resident_mib",)),
        "p50 and p99 in ms by connections": ("connections", "connections", ("p50_ms", "p99_ms")),
    }
    draw_growth(
        {
            title: (
                [point[by] for point in told[step]],
                {name: [point[name] for point in told[step]] for name in names},
            )
            for title, (step, by, names) in panels.items()
            if told.get(step)
        },
        CHART,
    )


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = partial(parser.add_argument, type=int, nargs="+")
    numbers("--sizes", default=list(SIZES), help="members of the boards")
    numbers("--boards", default=list(BOARDS), help="numbers of boards")
    numbers("--connections", default=list(CONNECTIONS), help="numbers of connections")
    parser.add_argument("--huge", action="store_true", help="a board of 10,000,000 members too: minutes, 3 GB")
    parser.add_argument("--only", action="append", choices=STEPS, help="the others stay as the last report has them")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--docs", action="store_true", help="rewrite docs/performance.md's tables and docs/scale.png")
    parser.add_argument("--report", type=Path, default=REPORT)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a step is missing."""
    options = parsed(arguments)
    end_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # for 5,000 connections; children inherit it
    told = measured(options)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(told, indent=1))
    print(tables(told))
    if options.docs:
        write_documents(told)
    return 1 if told["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
