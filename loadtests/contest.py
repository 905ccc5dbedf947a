"""A contest: some contenders answering in turn, and the lines of the table that their readings become.

Knows: contenders, wrk, rows.
Must not know: which servers they are, or how they were started.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from loadtests.measure import Rounds, take_turns
from loadtests.programs import Missing
from loadtests.setup import prepared
from loadtests.table import Row
from loadtests.wrk import Reading, Shot, fire

Value = Literal["per_second", "p99_ms", "counted"]
UNITS: dict[Value, str] = {"per_second": "/s", "p99_ms": " ms", "counted": ""}
Enter = Callable[[ExitStack], object]

AWAY = {503, 504}
PATIENT = 3
"""How often a sample is asked for while it is ``AWAY``: on a busy machine a first read may outlast its budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who is asked, for what, and how to know a right answer."""

    name: str
    shot: Shot
    status: int = 200
    expect: bytes = b""
    count: Callable[[], int] | None = None
    """A number that grows; by how much it did during a reading is the reading's ``counted``."""
    enter: Enter | None = None
    """Brings about what must hold during its readings only (Redis frozen), undone when the stack closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row to be made of the readings: a ratio of two contenders."""

    key: str
    what: str
    of: str
    against: str
    asked: float | None = None
    value: Value = "per_second"


@dataclass(frozen=True, slots=True)
class Contest:
    """Contenders that take turns, and the lines made of their readings."""

    contenders: Sequence[Contender]
    lines: Sequence[Line]
    absent: dict[str, str] = field(default_factory=dict)
    """Contenders that could not be started, and why: their lines are named as missing."""

    def run(self, rounds: int, seconds: float, folder: Path) -> list[Row]:
        """Take the readings and return a row for each line."""
        absent = dict(self.absent)
        present: dict[str, Contender] = {}
        for contender in self.contenders:
            if why := wrong_sample(contender):
                absent[contender.name] = why
            else:
                present[contender.name] = contender
        wanted = {
            name: partial(reading, contender, seconds, folder)
            for name, contender in present.items()
            if any(name in (line.of, line.against) for line in self.lines)
        }
        taken = take_turns(wanted, rounds)
        return [row_of(line, taken, absent) for line in self.lines]


def reading(contender: Contender, seconds: float, folder: Path) -> Reading:
    """Take one reading."""
    with ExitStack() as stack:
        if contender.enter is not None:
            contender.enter(stack)
        if contender.count is None:
            return fire(contender.shot, seconds, folder)
        before = contender.count()
        return replace(fire(contender.shot, seconds, folder), counted=contender.count() - before)


def wrong_sample(contender: Contender) -> str:
    """Return what is wrong with one answer of a contender; empty if it is as it should be."""
    scheme, host_and_path = contender.shot.url.replace("{}", "0").split("://", 1)
    host, _, path = host_and_path.partition("/")
    try:
        for _ in range(PATIENT):
            answer = prepared(f"{scheme}://{host}", f"/{path}", list(contender.shot.headers.items()))
            if answer.status not in AWAY:
                break
    except (OSError, http.client.HTTPException) as error:
        return f"{contender.name} does not answer: {error}"
    if answer.status != contender.status:
        return f"{contender.name} answers {answer.status}, not {contender.status}"
    if contender.expect not in answer.body:
        return f"{contender.name} answers something else: {answer.body[:60]!r}"
    return ""


def row_of(line: Line, taken: Rounds[Reading], absent: dict[str, str]) -> Row:
    """Return the row of one line."""
    missing = [absent.get(name, "") for name in (line.of, line.against) if name in absent]
    if missing:
        return Row(key=line.key, what=line.what, asked=line.asked, missing="; ".join(missing))
    spread = taken.ratio(line.of, line.against, lambda each: float(getattr(each, line.value)))
    readings = {
        name: taken.spread(name, lambda each: float(getattr(each, line.value))).median
        for name in (line.of, line.against)
    }
    return Row(
        key=line.key,
        what=line.what,
        asked=line.asked,
        median=spread.median,
        least=spread.least,
        most=spread.most,
        readings=readings,
        reading_unit=UNITS[line.value],
        failed=sum(each.failed for name in (line.of, line.against) for each in taken.readings[name]),
    )


def why_missing(error: BaseException) -> str:
    """Return in one line why something could not be measured."""
    why = str(error) if isinstance(error, Missing) else f"{type(error).__name__}: {error}"
    return why.splitlines()[0][:200]
