"""What a period is, and what every calendar answers.

Knows: the kinds of periods of the contract.
Must not know: how any of them is computed, clocks, boards, Redis, HTTP.
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


class CalendarError(ValueError):
    """One setting of a calendar cannot be used; ``key`` names it (``timezone``, ``seasons[1].end``)."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        self.message = message
        super().__init__(f"{key}: {message}")
