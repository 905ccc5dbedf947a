"""Periods: which day, week, month or season an instant falls in, and how its key is written.

Knows: calendars, time zones, ISO 8601 weeks.
Must not know: clocks, boards, Redis, HTTP.

The seam is ``Calendar`` and ``Period``; ``calendar_for`` builds one from a board's settings.
"""

from gateway.periods.build import Season, calendar_for
from gateway.periods.calendar import Calendar, CalendarError, Period, PeriodKind

__all__ = ["Calendar", "CalendarError", "Period", "PeriodKind", "Season", "calendar_for"]
