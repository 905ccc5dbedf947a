"""What holds for every calendar and every instant, against a computation of another kind."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.periods import Calendar, calendar_for

ZONES = (
    "UTC",
    "Europe/London",
    "America/New_York",
    "America/Havana",
    "America/St_Johns",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "America/Scoresbysund",
    "Antarctica/Troll",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

zones = st.sampled_from(ZONES)
kinds = st.sampled_from(["daily", "weekly", "monthly"])
times = st.times().map(lambda t: t.strftime("%H:%M"))
weekdays = st.sampled_from(WEEKDAYS)


def changes(zone: str) -> list[int]:
    """Find the zone's clock changes between 1994 and 2040, to the quarter hour, by looking."""
    info = ZoneInfo(zone)
    found = []
    step, last = 86400, int(datetime(2040, 1, 1, tzinfo=UTC).timestamp())
    previous = None
    for wall in range(int(datetime(1994, 1, 1, tzinfo=UTC).timestamp()), last, step):
        offset = datetime.fromtimestamp(wall, info).utcoffset()
        if previous is not None and offset != previous:
            found.append(
                next(
                    t
                    for t in range(wall - step, wall + 1, 900)
                    if datetime.fromtimestamp(t, info).utcoffset() == offset
                )
            )
        previous = offset
    return found


CHANGES = {zone: changes(zone) for zone in ZONES}


@st.composite
def instants(draw: st.DrawFn, zone: str) -> float:
    """Draw an instant, half of the time within two days of a clock change."""
    if draw(st.booleans()) and CHANGES[zone]:
        near = draw(st.sampled_from(CHANGES[zone]))
        return near + draw(st.integers(-172800, 172800)) + draw(st.sampled_from([0.0, 0.5]))
    return float(draw(st.integers(86400 * 40, 32_000_000_000)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, str, str, float]:
    zone = draw(zones)
    return draw(kinds), zone, draw(times), draw(weekdays), draw(instants(zone))


def built(kind: str, zone: str, starts_at: str, week_starts: str) -> Calendar:
    calendar = calendar_for(kind, timezone=zone, starts_at=starts_at, week_starts=week_starts)
    assert calendar is not None
    return calendar


@given(cases())
@settings(max_examples=300, deadline=None)
def test_periods_tile_the_time_line(case: tuple[str, str, str, str, float]) -> None:
    """Each instant lies in one period; labels lead back; where one ends the next begins and names it."""
    *how, wall = case
    calendar = built(*how)
    period = calendar.at(wall)
    assert period is not None
    assert period.start <= wall < period.end
    assert calendar.named(period.label) == period
    following = calendar.at(period.end)
    assert following is not None
    assert following.start == period.end
    assert following.previous == period.label
    assert calendar.before(period.end) == period
    assert built(*how).at(period.end - 0.001) == period
    if period.previous is not None:
        assert calendar.named(period.previous).end == period.start


def highest_shown(wall: float, zone: str) -> datetime:
    """Return the latest time that the zone's clock had shown by this instant: minute by minute, nine hours back."""
    info = ZoneInfo(zone)
    minute = wall - wall % 60
    walls = [wall, *(minute - 60 * n for n in range(9 * 60))]
    return max(datetime.fromtimestamp(t, info).replace(tzinfo=None) for t in walls)


def expected_label(kind: str, day: date, week_starts: str) -> str:
    if kind == "daily":
        return day.isoformat()
    if kind == "monthly":
        return day.isoformat()[:7]
    while day.strftime("%A").lower() != week_starts:
        day -= timedelta(days=1)
    while day.strftime("%a") != "Thu":
        day += timedelta(days=1)
    return day.strftime("%G-W%V")


@given(cases())
@settings(max_examples=150, deadline=None)
def test_the_period_is_the_last_whose_start_the_clock_has_shown(case: tuple[str, str, str, str, float]) -> None:
    """A period has begun once the zone's clock has shown its start, and not before, whatever the clock did since."""
    kind, zone, starts_at, week_starts, wall = case
    shown = highest_shown(wall, zone)
    day = shown.date()
    if shown.time() < time.fromisoformat(starts_at):
        day -= timedelta(days=1)
    period = built(kind, zone, starts_at, week_starts).at(wall)
    assert period is not None
    assert period.label == expected_label(kind, day, week_starts)
