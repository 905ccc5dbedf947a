"""The ``load`` command: checks a whole CSV file, then puts it in place of a board.

Knows: its arguments, how progress and bad lines are shown.
Must not know: how rows are swapped in, CSV rules.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.boards import Boards
from gateway.clock import Clock, SystemClock
from gateway.errors import GatewayError
from gateway.load.board import Loaded, load_board
from gateway.load.client import primary
from gateway.model import Target
from gateway.scorefile import ScoreFile, lines_of, parse
from gateway.settings import Settings
from gateway.terminal import FAILED, INTERRUPTED, Commands, consoles, interruptible

SPANS_SHOWN = 100
"""How many spans of further bad lines are listed by number, beside the ones explained."""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add ``load`` and its arguments, all but ``--config``."""
    parser = commands.add_parser(
        "load",
        help="put a CSV file of member,score lines in place of a board",
        description="Check a CSV file of member,score lines, load it beside the board and swap it in at once. Any bad "
        "line is reported by number and nothing is changed. Scores that others write meanwhile are lost.",
    )
    parser.add_argument("file", metavar="FILE", help="the CSV file, UTF-8; - reads standard input")
    parser.add_argument("--leaderboard", metavar="NAME", required=True, help="the board's name, as in its URL")
    parser.add_argument("--period", metavar="LABEL", help="a period's label, or previous (default: the current one)")
    parser.add_argument("--skip-bad", action="store_true", help="load the good lines though others are bad")
    return parser


def run(args: argparse.Namespace, settings: Settings, clock: Clock | None = None) -> int:
    """Run the command; return its exit status."""
    out, err = consoles()
    clock = clock or SystemClock()
    try:
        with interruptible():
            return _load(args, settings, clock, out, err)
    except (GatewayError, OSError) as error:
        detail = error.detail if isinstance(error, GatewayError) else f"{args.file}: {error.strerror or error}"
        err.print(f"load: {detail}")
        return FAILED
    except KeyboardInterrupt:
        err.print("load: stopped; the board is unchanged.")
        return INTERRUPTED


def _load(args: argparse.Namespace, settings: Settings, clock: Clock, out: Console, err: Console) -> int:
    target = Boards(settings.boards).resolve(args.leaderboard, args.period, clock.wall())
    file = _read(args.file, err)
    if file.bad_numbers:
        _report(file, err)
        if not args.skip_bad:
            err.print("Nothing was changed. Mend these lines, or load the others with --skip-bad.")
            return FAILED
    if not len(file):
        err.print(f"load: {args.file} holds no row to load; nothing was changed.")
        return FAILED
    began = clock.monotonic()
    with primary(settings.redis) as client, _progress(err, "loading", len(file), DONE_OF_TOTAL) as written:
        loaded = load_board(client, target.key, file.rows(), written=written)
    _tell(out, target, loaded, clock.monotonic() - began)
    return 0


def _read(name: str, err: Console) -> ScoreFile:
    with _open(name) as source:
        size = Path(name).stat().st_size if Path(name).is_file() else None
        with _progress(err, "checking", size, BYTES) as seen:
            return parse(lines_of(source), seen=seen)


@contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as source:
            yield source


DONE_OF_TOTAL, BYTES = MofNCompleteColumn, DownloadColumn
REPORT_EVERY = 1 << 16
"""The bar is told in steps of this many units at least: told of every line, it would cost more than the reading."""


@contextmanager
def _progress(
    err: Console, what: str, total: int | None, column: type[MofNCompleteColumn | DownloadColumn]
) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; give the function that moves it. Elsewhere nothing is shown until the end."""
    if not err.is_terminal:
        yield lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), column(), TimeRemainingColumn())
    step = min(REPORT_EVERY, (total or REPORT_EVERY) // 100)
    waiting = 0
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(what, total=total)

        def moved(done: int) -> None:
            nonlocal waiting
            waiting += done
            if waiting >= step:
                bar.advance(task, waiting)
                waiting = 0

        yield moved
        bar.advance(task, waiting)


def _report(file: ScoreFile, err: Console) -> None:
    for number, reason in file.bad:
        err.print(f"line {number} {reason}")
    rest = file.bad_numbers[len(file.bad) :]
    if rest:
        err.print(f"and {len(rest)} more: lines {', '.join(_spans(rest.tolist()))}")
    err.print(f"{len(file.bad_numbers)} bad line{'s' if len(file.bad_numbers) > 1 else ''}, {len(file)} good.")


def _spans(numbers: list[int]) -> list[str]:
    """Return ascending line numbers with runs joined (``3``, ``7–9``), cut after ``SPANS_SHOWN``."""
    runs = [
        [number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda place: place[1] - place[0])
    ]
    spans = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return spans if len(spans) <= SPANS_SHOWN else [*spans[:SPANS_SHOWN], "…"]


def _tell(out: Console, target: Target, loaded: Loaded, took_s: float) -> None:
    name = target.leaderboard if target.label is None else f"{target.leaderboard} ({target.label})"
    rows = "1 member" if loaded.rows == 1 else f"{loaded.rows:,} members"
    before = f"in place of {loaded.before:,}" if loaded.before else "on a board that was empty"
    out.print(f"{name}: {rows} loaded in {took_s:.1f} s {before}.")
    if loaded.before:
        out.print("Scores that others wrote to the board meanwhile are lost.")
    if loaded.expires_s is not None:
        out.print(f"The board keeps its expiry: in {loaded.expires_s:,.0f} s.")
