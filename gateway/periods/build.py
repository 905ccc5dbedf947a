"""Building a board's calendar from its settings, every doubt refused with a sentence that names the setting.

Knows: the settings of periods as text and dates.
Must not know: TOML, environments, where a problem is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, tzinfo
from functools import lru_cache
from typing import NamedTuple

from gateway.periods.calendar import Calendar, CalendarError, Period
from gateway.periods.dated import DatedCalendar
from gateway.periods.grids import WEEKDAYS, Days, Grid, Months, Weeks
from gateway.periods.keyform import Form, compile_form
from gateway.periods.localtime import first_instant, zone_named
from gateway.periods.seasons import LABEL_LIMIT, RESERVED, SeasonCalendar, well_formed

_CHECKED_YEARS = (2020, 2050)
"""Over 28 years and more every pairing of weekday, date and leap year occurs, ISO week 53 included."""


class Season(NamedTuple):
    """A season as the settings give it; ``end`` is the first instant that is no longer in it.

    A time without an offset is local, a date alone stands for ``starts_at`` on that day; text is ISO 8601.
    """

    label: str
    start: date | datetime | str
    end: date | datetime | str


def calendar_for(
    period: str,
    *,
    timezone: str = "UTC",
    starts_at: str = "00:00",
    week_starts: str = "monday",
    period_format: str | None = None,
    seasons: Sequence[Season] = (),
) -> Calendar | None:
    """Build a board's calendar, None for a board without periods; raise ``CalendarError`` (a ValueError).

    ``period`` is ``none``, ``daily``, ``weekly``, ``monthly`` or ``seasons``; with seasons given, ``none`` means
    ``seasons``. The error carries the ``key`` of the setting at fault.
    """
    zone, begins, form = _zone(timezone), _time(starts_at), _form(period_format)
    grid = _grid(period, _weekday(week_starts))
    if seasons and grid is not None:
        raise CalendarError("seasons", f"a board has either seasons or period = {period!r}, not both")
    if grid is not None:
        if period_format is not None:
            _check_form(period_format, grid)
        return DatedCalendar(grid, zone, begins, form)
    if seasons:
        return SeasonCalendar(list(_seasons(seasons, zone, begins, form)))
    if period == "seasons":
        raise CalendarError("seasons", "period = 'seasons' needs at least one, with label, start and end")
    return None


def _grid(period: str, first_weekday: int) -> Grid | None:
    grids: dict[str, Grid | None] = {
        "none": None,
        "seasons": None,
        "daily": Days(),
        "weekly": Weeks(first_weekday),
        "monthly": Months(),
    }
    if period not in grids:
        raise CalendarError("period", f"{period!r} is not one of {', '.join(grids)}")
    return grids[period]


def _zone(timezone: str) -> tzinfo:
    try:
        return zone_named(timezone)
    except ValueError as error:
        raise CalendarError("timezone", str(error)) from error


def _time(starts_at: str) -> time:
    match = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", starts_at, re.ASCII)
    if match is None:
        raise CalendarError("starts_at", f"{starts_at!r} is not a time such as '05:00', from '00:00' to '23:59'")
    return time(int(match[1]), int(match[2]))


def _weekday(week_starts: str) -> int:
    if week_starts.lower() not in WEEKDAYS:
        raise CalendarError("week_starts", f"{week_starts!r} is not one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(week_starts.lower())


def _form(period_format: str | None) -> Form | None:
    if period_format is None:
        return None
    try:
        return compile_form(period_format)
    except ValueError as error:
        raise CalendarError("period_format", str(error)) from error


def _check_form(text: str, grid: Grid) -> None:
    first_weekday = grid.first_day(0).weekday() if isinstance(grid, Weeks) else 0
    clash = _clash(text, grid.kind, first_weekday)
    if clash is not None:
        one, other = clash
        raise CalendarError("period_format", f"{text!r} gives {one} and {other} the same key")


@lru_cache(maxsize=64)  # boards usually share one form, and a check of days is 11,000 dates
def _clash(text: str, kind: str, first_weekday: int) -> tuple[str, str] | None:
    grid = _grid(kind, first_weekday)
    form = compile_form(text)
    assert grid is not None  # noqa: S101 - only kinds with a grid are checked
    seen: dict[str, int] = {}
    first, last = (grid.number(date(year, 1, 1)) for year in _CHECKED_YEARS)
    for number in range(first, last):
        earlier = seen.setdefault(form(grid.first_day(number)), number)
        if earlier != number:
            return grid.label(earlier), grid.label(number)
    return None


def _seasons(seasons: Sequence[Season], zone: tzinfo, starts_at: time, form: Form | None) -> Iterator[Period]:
    spans: list[tuple[float, float, int, Season, date]] = []
    labels: set[str] = set()
    for index, season in enumerate(seasons):
        if season.label in RESERVED:
            message = f"{season.label!r} is reserved: ?period={season.label} asks for whichever season that is now"
            raise CalendarError(f"seasons[{index}].label", message)
        if not well_formed(season.label):
            message = (
                f"{season.label!r} is not 1 to {LABEL_LIMIT} printable characters "
                "without braces, < and >, and without a space at either end"
            )
            raise CalendarError(f"seasons[{index}].label", message)
        if season.label in labels:
            raise CalendarError(f"seasons[{index}].label", f"there are two seasons {season.label!r}")
        labels.add(season.label)
        first_day, start = _instant(season.start, f"seasons[{index}].start", zone, starts_at)
        _, end = _instant(season.end, f"seasons[{index}].end", zone, starts_at)
        if end <= start:
            raise CalendarError(f"seasons[{index}].end", f"season {season.label!r} ends before it has begun")
        spans.append((start, end, index, season, first_day))
    yield from _in_order(spans, form)


def _in_order(spans: list[tuple[float, float, int, Season, date]], form: Form | None) -> Iterator[Period]:
    ended, previous = float("-inf"), None
    parts: dict[str, str] = {}
    for start, end, index, season, first_day in sorted(spans):
        if start < ended:
            raise CalendarError(f"seasons[{index}].start", f"season {season.label!r} overlaps season {previous!r}")
        part = season.label if form is None else form(first_day)
        other = parts.setdefault(part, season.label)
        if other != season.label:
            raise CalendarError("period_format", f"seasons {other!r} and {season.label!r} would have the same key")
        yield Period("seasons", season.label, start, end, part, previous)
        ended, previous = end, season.label


def _instant(value: date | datetime | str, key: str, zone: tzinfo, starts_at: time) -> tuple[date, float]:
    """Return the local date and the wall second that a season's start or end stands for."""
    if isinstance(value, str):
        value = _parsed(value, key)
    if not isinstance(value, datetime):
        value = datetime.combine(value, starts_at)
    try:
        if value.tzinfo is not None:
            return value.astimezone(zone).date(), value.timestamp()
        return value.date(), first_instant(value.replace(microsecond=0), zone)
    except (ValueError, OverflowError) as error:
        raise CalendarError(key, f"{value} is outside the years that calendars have") from error


def _parsed(text: str, key: str) -> date | datetime:
    try:
        return date.fromisoformat(text) if len(text) <= 10 else datetime.fromisoformat(text)
    except ValueError as error:
        raise CalendarError(
            key, f"{text!r} is not a date or time such as '2026-03-01' or '2026-03-01T09:00'"
        ) from error
