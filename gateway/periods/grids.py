"""Grids: days, weeks and months as consecutive numbers, each with a first day and a label.

Knows: the proleptic Gregorian calendar and ISO 8601 weeks.
Must not know: time zones, times of day, instants.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Protocol

from gateway.periods.calendar import PeriodKind

_THURSDAY = 3
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Grid(Protocol):
    """Periods as whole numbers: ``n + 1`` follows ``n``, and every day lies in exactly one."""

    @property
    def kind(self) -> PeriodKind:
        """What the catalogue calls these periods."""
        ...

    def number(self, day: date) -> int:
        """Return the number of the period that holds this day."""
        ...

    def first_day(self, number: int) -> date:
        """Return the day that the period begins on."""
        ...

    def label(self, number: int) -> str:
        """Return the period's name."""
        ...

    def parse(self, label: str) -> int:
        """Return the number of the period with this name; raise ValueError, also for a day that is none."""
        ...


class Days:
    """Days, named ``2026-03-19``."""

    kind: PeriodKind = "daily"

    def number(self, day: date) -> int:
        """Return the day's ordinal."""
        return day.toordinal()

    def first_day(self, number: int) -> date:
        """Return the day itself."""
        return date.fromordinal(number)

    def label(self, number: int) -> str:
        """Return the ISO 8601 date."""
        return date.fromordinal(number).isoformat()

    def parse(self, label: str) -> int:
        """Read exactly ``YYYY-MM-DD``."""
        year, month, day = _digits(r"(\d{4})-(\d\d)-(\d\d)", label)
        return date(year, month, day).toordinal()


class Weeks:
    """Weeks from any weekday on, named after the ISO 8601 week of the Thursday in them: ``2026-W12``.

    With weeks from Monday on that is the ISO week itself.
    """

    kind: PeriodKind = "weekly"

    def __init__(self, first_weekday: int = 0) -> None:
        self._shift = 1 + first_weekday  # ordinal 1 is a Monday
        self._to_thursday = (_THURSDAY - first_weekday) % 7

    def number(self, day: date) -> int:
        """Count weeks since the first one of year 1."""
        return (day.toordinal() - self._shift) // 7

    def first_day(self, number: int) -> date:
        """Return the day the week begins on."""
        return date.fromordinal(number * 7 + self._shift)

    def label(self, number: int) -> str:
        """Return the ISO week of its Thursday."""
        thursday = self.first_day(number) + timedelta(days=self._to_thursday)
        year, week, _ = thursday.isocalendar()
        return f"{year:04}-W{week:02}"

    def parse(self, label: str) -> int:
        """Read exactly ``YYYY-Www``; week 53 only in years that have one."""
        year, week = _digits(r"(\d{4})-W(\d\d)", label)
        return self.number(date.fromisocalendar(year, week, 1 + _THURSDAY))


class Months:
    """Months, named ``2026-03``."""

    kind: PeriodKind = "monthly"

    def number(self, day: date) -> int:
        """Count months since the first one of year 0."""
        return day.year * 12 + day.month - 1

    def first_day(self, number: int) -> date:
        """Return the first of the month."""
        return date(number // 12, number % 12 + 1, 1)

    def label(self, number: int) -> str:
        """Return year and month."""
        return f"{number // 12:04}-{number % 12 + 1:02}"

    def parse(self, label: str) -> int:
        """Read exactly ``YYYY-MM``."""
        year, month = _digits(r"(\d{4})-(\d\d)", label)
        return self.number(date(year, month, 1))


def _digits(pattern: str, label: str) -> list[int]:
    match = re.fullmatch(pattern, label, re.ASCII)
    if match is None:
        raise ValueError("not of this form")
    return [int(group) for group in match.groups()]
