"""Periods: which day, week, month or season an instant falls in, and how its key is written.

Knows: calendars, time zones, ISO 8601 weeks.
Must not know: clocks, boards, Redis, HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

PeriodKind = Literal["daily", "weekly", "monthly", "seasons"]


@dataclass(frozen=True, slots=True)
class Period:
    """One period: its label, its half-open span in wall seconds, and its form in the key."""

    kind: PeriodKind
    label: str
    start: float
    end: float
    key_part: str
    previous: str | None


class Calendar(Protocol):
    """The periods of one board."""

    @property
    def kind(self) -> PeriodKind:
        """What the catalogue calls these periods."""
        ...

    def at(self, wall: float) -> Period | None:
        """Return the period that holds this instant; None between two seasons."""
        ...

    def before(self, wall: float) -> Period | None:
        """Return the last period that had ended at this instant; None before the second season."""
        ...

    def named(self, label: str) -> Period:
        """Return the period with this label; raise ``InvalidPeriod`` if it is malformed."""
        ...
