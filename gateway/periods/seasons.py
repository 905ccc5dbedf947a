"""Seasons: periods whose names and dates the operator chose, with gaps allowed between them.

Knows: the list of seasons.
Must not know: how their instants were written in the settings; clocks, boards, Redis, HTTP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gateway.errors import InvalidPeriod, PeriodNotFound
from gateway.periods.calendar import Period, PeriodKind

LABEL_LIMIT = 64
RESERVED = ("current", "previous")
"""What clients ask for in place of a label."""


class SeasonCalendar:
    """Seasons in order of time, none overlapping."""

    kind: PeriodKind = "seasons"

    def __init__(self, seasons: Sequence[Period]) -> None:
        self._seasons = tuple(seasons)
        self._starts = [season.start for season in seasons]
        self._ends = [season.end for season in seasons]
        self._named = {season.label: season for season in seasons}
        self._current: Period | None = None

    def at(self, wall: float) -> Period | None:
        """Return the season that holds this instant; None in a gap, before the first and after the last."""
        current = self._current
        if current is not None and current.start <= wall < current.end:
            return current
        index = bisect_right(self._starts, wall) - 1
        if index < 0 or not self._starts[index] <= wall < self._ends[index]:
            return None
        self._current = current = self._seasons[index]
        return current

    def before(self, wall: float) -> Period | None:
        """Return the season that ended last."""
        index = bisect_right(self._ends, wall) - 1
        return self._seasons[index] if index >= 0 else None

    def named(self, label: str) -> Period:
        """Return the season with this label; raise ``PeriodNotFound`` for one that is not, or no longer, listed."""
        season = self._named.get(label)
        if season is not None:
            return season
        if not well_formed(label):
            raise InvalidPeriod(
                f"A season's label is 1 to {LABEL_LIMIT} characters, none of them a control or a brace."
            )
        raise PeriodNotFound("This leaderboard has no season of that name.")


def well_formed(label: str) -> bool:
    """Tell whether a text can be a season's label: it stands in URLs, and in keys, where braces mark hash tags."""
    return (
        0 < len(label) <= LABEL_LIMIT
        and label == label.strip()
        and label not in RESERVED
        and label.isprintable()
        and not set(label) & {"{", "}", "<", ">"}
    )
