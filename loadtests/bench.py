"""``make bench``: the gateway beside what it is compared with, in one run on one machine, as a table.

Knows: the contests, the reports that load runs have left, where results go.
Must not know: how a contender is started or read.

Every contest takes its readings in turn (A B C A B C …), one worker each, with ``wrk -t1 -c64``; a row is the median
of the ratios within rounds, with the least and the most of them. A row fails if an answer was no 200 or 304.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests import runs
from loadtests.contest import why_missing
from loadtests.contests import CONTESTS, LINES, MEMBERS, Bench
from loadtests.programs import Missing, end_on_sigterm
from loadtests.setup import ROOT, Setup
from loadtests.table import Row, as_markdown, as_text, replaced

REPORTS = ROOT / "reports"
DOCUMENT = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "bench.png"
HUGE = 10_000_000


def measured(options: argparse.Namespace) -> list[Row]:
    """Run the contests that were asked for and return their rows."""
    rows: list[Row] = []
    with Setup(replicas=1) as setup:
        only = [
            line.key
            for name, lines in LINES.items()
            for line in lines
            if not options.only or {name, line.key} & set(options.only)
        ]
        bench = Bench(setup, large=HUGE if options.huge else options.members, only=only)
        for name, contest in CONTESTS.items():
            lines = [line for line in LINES[name] if line.key in only]
            if not lines:
                continue
            print(f"… {name}", file=sys.stderr, flush=True)
            try:
                made = contest(bench).run(options.rounds, options.seconds, setup.programs.folder)
            except (Missing, RuntimeError, TimeoutError, OSError, KeyError, ImportError, AttributeError) as error:
                why = why_missing(error)
                made = [Row(key=line.key, what=line.what, asked=line.ratio, missing=why) for line in lines]
            rows += made
    return rows


def report(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Return the whole result as JSON data."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "members": HUGE if options.huge else options.members,
        "rows": [row.as_json() for row in rows],
    }


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in _lines(cpuinfo) if line.startswith("model name")]
    return {
        "cores": len(models) or None,
        "cpu": models[0] if models else platform.processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def block(result: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return what goes between the markers of the document."""
    told = result["machine"]
    return (
        f"Measured {result['at']} on {told['cores']} cores of {told['cpu']}, Linux {told['kernel']}, "
        f"Python {told['python']}; large board: {result['members']:,} members; medians of {result['rounds']} rounds of "
        f"{result['seconds']:g} s (least–most).\n\n{as_markdown(rows)}"
    )


def write_documents(result: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Rewrite the generated table of the document, and the chart."""
    from loadtests.chart import draw_ratios

    DOCUMENT.write_text(replaced(DOCUMENT.read_text(), block(result, rows)))
    draw_ratios([row for row in rows if not row.missing and not row.unit], CHART)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="readings of each contender (5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of one reading (3)")
    parser.add_argument("--only", action="append", metavar="LINE", help="a contest or a line of it; may be repeated")
    parser.add_argument("--members", type=int, default=MEMBERS["large"], help="size of the large board (1,000,000)")
    parser.add_argument("--huge", action="store_true", help="10,000,000 members: minutes to fill, 4 GB")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/performance.md's table and docs/bench.png")
    parser.add_argument("--report", type=Path, default=REPORTS / "bench.json", help="where the JSON goes")
    parser.add_argument("--from-report", action="store_true", help="print the last report again, measure nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if something asked for was not reached, or a contest could not be held.

    What the last load, soak and scale runs found is shown, and judged where there is something to judge.
    """
    options = parsed(arguments)
    end_on_sigterm()
    if options.from_report:
        result = json.loads(options.report.read_text())
    else:
        result = report(measured(options), options)
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(json.dumps(result, indent=1))
    rows = [Row.from_json(row) for row in result["rows"]]
    unmeasured = any(row.missing for row in rows)
    if not options.only:
        rows += runs.rows(REPORTS)
    print(as_text(rows))
    if options.docs:
        write_documents(result, rows)
    return 1 if unmeasured or any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
