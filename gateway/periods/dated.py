"""Dated calendars: days, weeks and months of a time zone as spans of instants.

Knows: grids, local time, key forms.
Must not know: clocks, boards, Redis, HTTP.

A period begins when the zone's clock first shows its first day at ``starts_at``, and ends where the next one
begins, so that periods tile the time line whatever the clock does. A day that a zone skipped altogether
(2011-12-30 in Apia) is no period.
"""

from __future__ import annotations

from datetime import date, datetime, time, tzinfo
from functools import lru_cache

from gateway.errors import InvalidPeriod
from gateway.periods.calendar import Period, PeriodKind
from gateway.periods.grids import Grid
from gateway.periods.keyform import Form
from gateway.periods.localtime import first_instant, shown_at

FIRST_YEAR, LAST_YEAR = 1970, 2999
"""Which labels exist: wall seconds begin in 1970, and nobody's leaderboard is a thousand years off."""

_EXAMPLES = {"daily": "2026-03-19", "weekly": "2026-W12", "monthly": "2026-03"}


class DatedCalendar:
    """The periods of a grid in a time zone. ``form`` writes the key part; None: the label is it."""

    def __init__(self, grid: Grid, zone: tzinfo, starts_at: time, form: Form | None = None) -> None:
        self.kind: PeriodKind = grid.kind
        self._grid = grid
        self._zone = zone
        self._starts_at = starts_at
        self._form = form
        self._first = grid.number(date(FIRST_YEAR, 1, 1))
        self._last = grid.number(date(LAST_YEAR, 12, 31))
        self._begin = self._start(self._first)
        self._end = self._start(self._last + 1)
        self._current: Period | None = None
        self._period = lru_cache(maxsize=512)(self._make)

    def at(self, wall: float) -> Period | None:
        """Return the period that holds this instant: two comparisons while it is the one asked for last."""
        current = self._current
        if current is not None and current.start <= wall < current.end:
            return current
        if not self._begin <= wall < self._end:  # not a number, too
            return None
        self._current = current = self._period(self._number_at(wall))
        return current

    def before(self, wall: float) -> Period | None:
        """Return the period before the one that holds this instant."""
        current = self.at(wall)
        if current is None or current.previous is None:
            return None
        return self._period(self._grid.parse(current.previous))

    def named(self, label: str) -> Period:
        """Return the period with this label; raise ``InvalidPeriod`` if there is none such, or it is too far off."""
        try:
            number = self._grid.parse(label)
        except ValueError:
            raise self._invalid() from None
        if not self._first <= number <= self._last:
            raise self._invalid()
        period = self._period(number)
        if period.start == period.end:
            raise InvalidPeriod("The leaderboard's time zone skipped this day.")
        return period

    def _number_at(self, wall: float) -> int:
        # The clock's own date is a first guess: it is one off before `starts_at`, and where a clock was set
        # back over the boundary.
        number = self._grid.number(shown_at(wall, self._zone).date())
        while self._start(number) > wall:
            number -= 1
        while self._start(number + 1) <= wall:
            number += 1
        return number

    def _start(self, number: int) -> float:
        return first_instant(datetime.combine(self._grid.first_day(number), self._starts_at), self._zone)

    def _make(self, number: int) -> Period:
        label = self._grid.label(number)
        return Period(
            kind=self.kind,
            label=label,
            start=self._start(number),
            end=self._start(number + 1),
            key_part=label if self._form is None else self._form(self._grid.first_day(number)),
            previous=self._previous(number),
        )

    def _previous(self, number: int) -> str | None:
        end = self._start(number)
        for earlier in range(number - 1, self._first - 1, -1):
            if self._start(earlier) < end:
                return self._grid.label(earlier)
        return None

    def _invalid(self) -> InvalidPeriod:
        return InvalidPeriod(
            f"A {self.kind} period is 'current', 'previous' or a label such as '{_EXAMPLES[self.kind]}', "
            f"from {FIRST_YEAR} to {LAST_YEAR}."
        )
