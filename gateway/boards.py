"""Boards: the name in a URL and ``?period=`` become a target, the board with its keys filled in.

Knows: configured names, families and their placeholders, calendars.
Must not know: HTTP, percent-encoding, Redis, clocks (the caller says what time it is).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cachetools import LRUCache

from gateway.errors import InvalidPeriod, LeaderboardNotFound, PeriodNotFound
from gateway.model import Board, Target
from gateway.periods import Calendar, Period
from gateway.placeholders import scoped

_TOKEN = re.compile(r"<([A-Za-z_][A-Za-z0-9_]*)>")
_GROUP = "placeholder_"
_KEPT_RESOLUTIONS = 4096
"""A resolution is about 600 bytes; names that clients invent can only push out others, which costs 5 µs each."""

_HORIZON_S = 400 * 86400.0
"""Longer than any lifetime that is sent (a year)."""

CURRENT = "current"
PREVIOUS = "previous"


class Resolution(NamedTuple):
    """A target, and the half-open span of wall seconds in which the same words mean it.

    ``until`` is the boundary that no lifetime may reach past, for the aliases ``current`` and ``previous``; it is
    infinite for a label, which always means the same period.
    """

    target: Target
    since: float
    until: float


class Boards:
    """The configured boards. Exact names win over families, earlier families over later ones."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self.catalogue = tuple(boards)
        """Every configured board, families too, in the order of the settings."""
        self._exact = {board.name: board for board in boards if not board.is_family}
        self._families = tuple((_name_pattern(board), board) for board in boards if board.is_family)
        self._keys = {board.name: _Template(board.key, board) for board in boards}
        self._profiles = {board.name: _Template(board.profiles, board) for board in boards if board.profiles}
        self._kept: LRUCache[tuple[str, str | None], Resolution] = LRUCache(_KEPT_RESOLUTIONS)

    def resolve(self, name: str, period: str | None, wall: float) -> Target:
        """Return what this name and period mean at this instant (wall seconds).

        Raise ``LeaderboardNotFound``, ``InvalidPeriod`` (malformed, or a board without periods) or
        ``PeriodNotFound`` (a gap between seasons, no previous one yet).
        """
        return self.resolution(name, period, wall).target

    def resolution(self, name: str, period: str | None, wall: float) -> Resolution:
        """Return the target and how long the same words mean it; raises as ``resolve`` does."""
        kept = self._kept.get((name, period))
        if kept is not None and kept.since <= wall < kept.until:
            return kept
        board, values = self._find(name)
        span, since, until = _period(board.calendar, period, wall)
        found = Resolution(self._target(board, name, values, span), since, until)
        self._kept[name, period] = found
        return found

    def boundary(self, wall: float) -> float:
        """Return the first instant after this one at which some board's ``current`` changes; infinite if none does."""
        calendars = (board.calendar for board in self.catalogue if board.calendar is not None)
        spans = (calendar.at(wall) for calendar in calendars)
        return min((span.end for span in spans if span is not None), default=float("inf"))

    def _find(self, name: str) -> tuple[Board, Mapping[str, str]]:
        exact = self._exact.get(name)
        if exact is not None:
            return exact, MappingProxyType({})
        for pattern, board in self._families:
            match = pattern.fullmatch(name)
            if match is not None:
                return board, {token: match[group] for token, group in _groups(pattern)}
        raise LeaderboardNotFound

    def _target(self, board: Board, name: str, values: Mapping[str, str], span: Period | None) -> Target:
        if span is not None:
            values = {**values, "period": span.key_part}
        profiles = self._profiles.get(board.name)
        return Target(
            board=board,
            leaderboard=name,
            key=self._keys[board.name].fill(values),
            profiles_key=None if profiles is None else profiles.fill(values),
            period=span,
        )


def _period(calendar: Calendar | None, period: str | None, wall: float) -> tuple[Period | None, float, float]:
    """Return the period meant, and the span in which the same word means it."""
    always = (float("-inf"), float("inf"))
    if calendar is None:
        if period is not None:
            raise InvalidPeriod("This leaderboard has no periods.")
        return None, *always
    if period is None or period == CURRENT:
        current = calendar.at(wall)
        if current is None:
            raise PeriodNotFound("No period of this leaderboard is running at the moment.")
        return current, current.start, current.end
    if period == PREVIOUS:
        return _previous(calendar, wall)
    return calendar.named(period), *always


def _previous(calendar: Calendar, wall: float) -> tuple[Period, float, float]:
    last = calendar.before(wall)
    if last is None:
        raise PeriodNotFound("No period of this leaderboard has ended yet.")
    current = calendar.at(wall)
    if current is not None:
        return last, current.start, current.end
    return last, wall, _next_end(calendar, last, wall)


def _next_end(calendar: Calendar, last: Period, wall: float) -> float:
    """Between two seasons: return when the next one will have ended, or the horizon if that is further off.

    A calendar answers only what has ended at an instant, which changes once in the span looked at or more often;
    halving the span on the side of the first change finds it, to the millisecond.
    """
    before, after = wall, wall + _HORIZON_S
    if calendar.before(after) == last:
        return after
    while after - before > 0.001:
        middle = (before + after) / 2
        if calendar.before(middle) == last:
            before = middle
        else:
            after = middle
    return before


class _Template:
    """A key with ``<placeholders>``; one pass, so that a value that looks like a placeholder stays as it is."""

    def __init__(self, text: str, board: Board) -> None:
        known = {*board.placeholders, *(("period",) if board.calendar is not None else ())}
        self._parts = [
            (part if index % 2 == 0 or part in known else f"<{part}>", index % 2 == 1 and part in known)
            for index, part in enumerate(_TOKEN.split(text))
        ]

    def fill(self, values: Mapping[str, str]) -> bytes:
        return "".join(values[part] if filled else part for part, filled in self._parts).encode()


def _group(token: str) -> str:
    """Name the group so that it cannot clash with groups of the operator's own pattern."""
    return _GROUP + token


def _groups(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for group in pattern.groupindex:
        if group.startswith(_GROUP):
            yield group.removeprefix(_GROUP), group


def _name_pattern(board: Board) -> re.Pattern[str]:
    """Build the expression of a family's names; a placeholder that stands twice must have the same value twice."""
    seen: set[str] = set()
    pieces: list[str] = []
    for index, part in enumerate(_TOKEN.split(board.name)):
        if index % 2 == 0:
            pieces.append(re.escape(part))
        elif part not in board.placeholders:
            pieces.append(re.escape(f"<{part}>"))
        elif part in seen:
            pieces.append(f"(?P={_group(part)})")
        else:
            seen.add(part)
            pieces.append(f"(?P<{_group(part)}>{scoped(board.placeholders[part])})")
    return re.compile("".join(pieces))
