"""Score files: CSV lines ``member,score`` become rows, and every bad line is named by its number.

Knows: CSV quoting, what a member id and a score may be.
Must not know: Redis, settings, files on disk, how a report is shown.
"""

from __future__ import annotations

import codecs
import csv
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

MEMBER_BYTES = 256
"""The longest member id (the contract, "Names and ids")."""

LINE_BYTES = 64 * 1024
"""The longest line that is looked at. A good one is shorter than 1 KiB; an endless one must not fill the memory."""

_CONTROL = re.compile("[\x00-\x1f\x7f]")
# What Redis takes as a score and a spreadsheet writes. float() alone would take "1_000", "nan" and Arabic digits.
_SCORE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITE = {"inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf")}
_SHOWN = 40  # characters of a refused value that a report repeats


class BadLine(NamedTuple):
    """One line that cannot be loaded: its number in the file (the first is 1), and what is wrong with it."""

    number: int
    reason: str


class _Refused(Exception):
    """Carries the reason why one line is bad."""


class ScoreFile:
    """What a file holds: members with their scores in the file's order, each once, and the lines left out.

    ``bad`` explains the first ``EXPLAINED`` bad lines, ``bad_numbers`` has the number of every one: a file of ten
    million bad lines is a mistake that must not cost gigabytes.
    """

    EXPLAINED = 20

    def __init__(self) -> None:
        self.bad: list[BadLine] = []
        self.bad_numbers = array("Q")
        self._index: dict[bytes, int] = {}
        self._scores = array("d")
        self._numbers = array("Q")

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self._scores)

    def rows(self) -> Iterator[tuple[bytes, float]]:
        """Give each member with its score, in the file's order."""
        return zip(self._index, self._scores, strict=True)

    def add(self, number: int, member: bytes, score: float) -> None:
        """Take the row of line ``number``, or note that it repeats a member."""
        earlier = self._index.setdefault(member, len(self._scores))
        if earlier == len(self._scores):
            self._scores.append(score)
            self._numbers.append(number)
        else:
            self.refuse(number, f"repeats the member {_show(member.decode())} of line {self._numbers[earlier]}")

    def refuse(self, number: int, reason: str) -> None:
        """Note that line ``number`` cannot be loaded."""
        self.bad_numbers.append(number)
        if len(self.bad) < self.EXPLAINED:
            self.bad.append(BadLine(number, reason))


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Give the lines of a file, what is longer than ``LINE_BYTES`` cut to one byte more than that."""
    while line := source.readline(LINE_BYTES + 1):
        yield line
        while len(line) > LINE_BYTES and not line.endswith(b"\n"):
            line = source.readline(LINE_BYTES + 1)


def parse(lines: Iterable[bytes], *, seen: Callable[[int], object] = lambda _bytes: None) -> ScoreFile:
    """Read a whole file of lines ending in LF or CRLF; ``seen`` is told the size of each line as it passes.

    A byte order mark, one header line ``member,score`` and empty lines are passed over. A line is one record: a
    member cannot hold a line end, so a quotation mark that is never closed spoils its own line and no other.
    """
    result = ScoreFile()
    for number, raw in enumerate(lines, start=1):
        seen(len(raw))
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        try:
            row = _row(line.removesuffix(b"\n").removesuffix(b"\r"), first=number == 1)
        except _Refused as refused:
            result.refuse(number, str(refused))
        else:
            if row is not None:
                result.add(number, *row)
    return result


def _row(line: bytes, *, first: bool) -> tuple[bytes, float] | None:
    """Return a line's member and score, or None where the line says nothing (empty, the header)."""
    if not line:
        return None
    if len(line) > LINE_BYTES:
        raise _Refused(f"is longer than {LINE_BYTES} bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise _Refused("is not UTF-8") from None
    fields = text.split(",") if '"' not in text else _quoted_fields(text)
    if len(fields) != 2:
        raise _Refused(f"has {len(fields)} field{'s' if len(fields) != 1 else ''} instead of 2 (member,score)")
    name, score = fields
    if first and (name.strip().lower(), score.strip().lower()) == ("member", "score"):
        return None
    return _member(name), _score(score)


def _quoted_fields(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error:
        raise _Refused("has a quotation mark out of place") from None


def _member(name: str) -> bytes:
    member = name.encode()
    if not member:
        raise _Refused("has an empty member")
    if len(member) > MEMBER_BYTES:
        raise _Refused(f"has a member of {len(member)} bytes; {MEMBER_BYTES} is the most")
    if _CONTROL.search(name):
        raise _Refused(f"has a control character in its member {_show(name)}")
    return member


def _score(text: str) -> float:
    text = text.strip(" ")
    infinite = _INFINITE.get(text.lower())
    if infinite is not None:
        return infinite
    if not _SCORE.fullmatch(text):
        raise _Refused(f"has a score that is not a number: {_show(text)}")
    score = float(text)
    if math.isinf(score):
        raise _Refused(f"has a score beyond what a double holds: {_show(text)}")
    return score + 0.0  # no negative zero


def _show(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
