"""What the last load, soak and scale runs found, as rows beside the comparison's.

Knows: the reports' JSON, and what the contract asks of each.
Must not know: how the runs were made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadtests import reads
from loadtests.table import Row

Report = Mapping[str, Any]
FEW, HUGE = 10_000, 10_000_000
"""Members of the boards whose ranks the contract compares."""


def rows(folder: Path) -> list[Row]:
    """Return the rows of every kind of run, with what is missing named."""
    found: list[Row] = []
    for scenario, make in MAKERS.items():
        path = folder / f"{scenario}.json"
        found += make(json.loads(path.read_text()) if path.exists() else {})
    return found


def mixed(report: Report) -> list[Row]:
    """Return the rows of ``mixed_10k``."""
    missing = _absent(report, "make load SCENARIO=mixed_10k")
    routes = report.get("routes", {})
    asked_rate = report.get("rate_asked") or 0
    failures = sum(sum(route["failures"].values()) for route in routes.values())
    if report and report["outcome"] == "void":
        missing = "void: " + "; ".join(report["reasons"])
    kept = _row(
        key="mixed_rate",
        what="mixed load, kept for its whole length",
        unit="reads/s",
        asked=10_000 * 0.95,
        missing=missing,
        failed=failures,
        value=asked_rate * (report.get("kept_share") or 0),
    )
    found = [kept]
    for key, route, most in (("mixed_top", reads.TOP, 50.0), ("mixed_rank", reads.RANK, 100.0)):
        p99 = routes.get(route, {}).get("p99_ms", float("nan"))
        what = f"mixed load, p99 of {route}, from when it was due"
        found.append(_row(key=key, what=what, unit="ms", asked=most, at_most=True, missing=missing, value=p99))
    ranges = report.get("range_commands")
    found.append(
        _row(
            key="mixed_ranges",
            what="Redis range commands for the top, per board, worker and TTL",
            asked=1.0,
            at_most=True,
            missing=missing or ("" if ranges else "Redis was not ours to count"),
            value=ranges["per_ttl"] if ranges else float("nan"),
        )
    )
    return found


def soak(report: Report) -> list[Row]:
    """Return the row of the soak."""
    right = report.get("right_share", float("nan"))
    what = f"ranks answered right in a soak of {report.get('minutes', 0):g} min with faults"
    missing = _absent(report, "make soak")
    return [_row(key="soak", what=what, unit="%", asked=99.99, missing=missing, value=100 * right)]


def scale(report: Report) -> list[Row]:
    """Return the rows of a worker's memory, and of ranks on the largest board that the contract asks about."""
    missing = _absent(report, "python -m loadtests.scale")
    memory = report.get("memory", {})
    one, more = memory.get("one_board_mib", float("nan")), memory.get("per_board_kib", float("nan"))
    # fmt: off
    return [
        huge_board(report.get("size", [])),
        _row(key="memory", what="memory of a worker with one board", unit="MiB", asked=100, at_most=True,
            missing=missing, value=one),
        _row(key="memory_board", what="memory for each further board cached", unit="KiB", asked=16, at_most=True,
            missing=missing, value=more),
    ]
    # fmt: on


def huge_board(points: Sequence[Mapping[str, float]]) -> Row:
    """Return the row of ranks on a board of 10,000,000 members against one of 10,000, measured in turn."""
    row = Row(key="size_huge", what=f"rank at {HUGE:,} members against {FEW:,}", asked=0.85)
    huge = next((point for point in points if point["members"] == HUGE), None)
    if huge is None or points[0]["members"] != FEW:
        return replace(row, missing=_absent({}, "python -m loadtests.scale --huge"))
    return replace(
        row,
        median=huge["rank_ratio"],
        least=huge["rank_ratio_least"],
        most=huge["rank_ratio_most"],
        readings={"large": huge["rank_per_s"], "small": points[0]["rank_per_s"]},
        failed=int(huge["failed"] + points[0]["failed"]),
    )


MAKERS: Mapping[str, Callable[[Report], list[Row]]] = {"mixed_10k": mixed, "soak": soak, "scale": scale}


def _absent(report: Report, command: str) -> str:
    return "" if report else f"not run yet: {command}"


def _row(*, value: float, **more: Any) -> Row:
    return Row(median=value, least=value, most=value, **more)
