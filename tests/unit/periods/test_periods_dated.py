"""Daily, weekly and monthly periods: labels, spans, ISO years, clock changes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.errors import InvalidPeriod
from gateway.periods import Calendar, Period, calendar_for
from gateway.periods.localtime import first_instant


def calendar(period: str, **settings: str) -> Calendar:
    built = calendar_for(period, **settings)  # type: ignore[arg-type]  # only text settings here
    assert built is not None
    return built


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def at(of: Calendar, text: str) -> Period:
    period = of.at(utc(text))
    assert period is not None
    return period


def span(period: Period) -> tuple[str, str]:
    return tuple(datetime.fromtimestamp(t, UTC).isoformat()[:16] for t in (period.start, period.end))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("instant", "label", "previous"),
    [
        ("2024-12-29T23:59:59", "2024-W52", "2024-W51"),
        ("2024-12-30T00:00:00", "2025-W01", "2024-W52"),
        ("2026-12-31T12:00:00", "2026-W53", "2026-W52"),
        ("2027-01-03T23:59:59", "2026-W53", "2026-W52"),
        ("2027-01-04T00:00:00", "2027-W01", "2026-W53"),
        ("2021-01-03T00:00:00", "2020-W53", "2020-W52"),
    ],
)
def test_a_week_carries_the_iso_year_of_its_thursday(instant: str, label: str, previous: str) -> None:
    week = at(calendar("weekly"), instant)
    assert (week.label, week.previous, week.kind) == (label, previous, "weekly")
    assert week.end - week.start == 7 * 86400


@pytest.mark.parametrize(
    ("weekday", "start", "label"),
    [
        ("monday", "2026-12-28", "2026-W53"),
        ("sunday", "2026-12-27", "2026-W53"),
        ("Saturday", "2026-12-26", "2026-W53"),
        ("friday", "2026-12-25", "2026-W53"),
        ("thursday", "2026-12-31", "2026-W53"),
        ("tuesday", "2026-12-29", "2026-W53"),
    ],
)
def test_a_week_that_starts_on_another_day_is_still_named_after_its_thursday(
    weekday: str, start: str, label: str
) -> None:
    week = at(calendar("weekly", week_starts=weekday), "2026-12-31T12:00")
    assert week.label == label
    assert span(week)[0] == f"{start}T00:00"


def test_a_sunday_belongs_to_the_week_it_starts_or_to_the_one_it_ends() -> None:
    assert at(calendar("weekly", week_starts="sunday"), "2027-01-03T00:00").label == "2027-W01"
    assert at(calendar("weekly"), "2027-01-03T00:00").label == "2026-W53"


def test_a_period_changes_at_its_start_time_to_the_second() -> None:
    daily = calendar("daily", starts_at="05:00", timezone="Asia/Tokyo")
    assert at(daily, "2026-03-18T19:59:59").label == "2026-03-18"
    assert at(daily, "2026-03-18T20:00:00").label == "2026-03-19"
    assert daily.at(utc("2026-03-18T20:00:00") - 0.001) == at(daily, "2026-03-18T19:59:59")


def test_a_month_starts_at_its_time_on_its_first_day() -> None:
    month = at(calendar("monthly", timezone="America/New_York", starts_at="06:00"), "2026-01-01T10:59:59")
    assert (month.label, month.previous) == ("2025-12", "2025-11")
    assert span(month) == ("2025-12-01T11:00", "2026-01-01T11:00")


# Clock changes: London 2026-03-29 01:00 → 02:00 and 2026-10-25 02:00 → 01:00 (both at 01:00 UTC); New York
# 2026-03-08 02:00 → 03:00 (07:00 UTC) and 2026-11-01 02:00 → 01:00 (06:00 UTC).
@pytest.mark.parametrize(
    ("zone", "starts_at", "day", "start", "hours"),
    [
        ("Europe/London", "00:00", "2026-03-29", "2026-03-29T00:00", 23),
        ("Europe/London", "00:00", "2026-10-25", "2026-10-24T23:00", 25),
        ("Europe/London", "01:30", "2026-03-29", "2026-03-29T01:00", 23.5),  # skipped: the first instant after
        ("Europe/London", "01:00", "2026-03-29", "2026-03-29T01:00", 23),
        ("Europe/London", "02:00", "2026-03-29", "2026-03-29T01:00", 24),
        ("Europe/London", "01:30", "2026-10-25", "2026-10-25T00:30", 25),  # twice: the first of them
        ("Europe/London", "02:00", "2026-10-25", "2026-10-25T02:00", 24),
        ("America/New_York", "02:30", "2026-03-08", "2026-03-08T07:00", 23.5),
        ("America/New_York", "01:30", "2026-11-01", "2026-11-01T05:30", 25),
        ("America/New_York", "00:00", "2026-03-08", "2026-03-08T05:00", 23),
        ("America/Havana", "00:00", "2026-03-08", "2026-03-08T05:00", 23),  # midnight itself is skipped
        ("America/Havana", "00:00", "2026-11-01", "2026-11-01T04:00", 25),  # and happens twice
        ("Asia/Beirut", "23:30", "2025-10-25", "2025-10-25T20:30", 25),
        ("Asia/Beirut", "00:00", "2025-10-26", "2025-10-25T22:00", 24),  # 24:00 becomes 23:00: no midnight yet
        ("Australia/Lord_Howe", "02:15", "2026-10-04", "2026-10-03T15:30", 23.75),  # changes by half an hour
        ("Australia/Lord_Howe", "01:45", "2026-04-05", "2026-04-04T14:45", 24.5),
    ],
)
def test_a_start_that_is_skipped_comes_right_after_and_one_that_happens_twice_is_the_first(
    zone: str, starts_at: str, day: str, start: str, hours: float
) -> None:
    period = calendar("daily", timezone=zone, starts_at=starts_at).named(day)
    assert span(period)[0] == start
    assert (period.end - period.start) / 3600 == hours


def test_a_day_that_has_begun_does_not_end_when_the_clock_is_set_back_over_midnight() -> None:
    st_johns = calendar("daily", timezone="America/St_Johns")  # 2010-11-07 00:01 → 2010-11-06 23:01, at 02:31 UTC
    assert at(st_johns, "2010-11-07T02:29:59").label == "2010-11-06"
    assert at(st_johns, "2010-11-07T02:30:59").label == "2010-11-07"
    assert at(calendar("daily", timezone="America/St_Johns"), "2010-11-07T02:45:00").label == "2010-11-07"
    assert span(st_johns.named("2010-11-07")) == ("2010-11-07T02:30", "2010-11-08T03:30")


def test_a_day_that_a_zone_skipped_is_no_period_and_nobodys_previous() -> None:
    apia = calendar("daily", timezone="Pacific/Apia")
    day = apia.named("2011-12-31")
    assert day.previous == "2011-12-29"
    assert apia.before(day.start) == apia.named("2011-12-29")
    assert apia.named("2011-12-29").end == day.start
    with pytest.raises(InvalidPeriod, match="skipped"):
        apia.named("2011-12-30")


def test_a_skipped_day_cuts_the_day_before_it_where_days_start_at_noon() -> None:
    apia = calendar("daily", timezone="Pacific/Apia", starts_at="12:00")
    assert span(apia.named("2011-12-29")) == ("2011-12-29T22:00", "2011-12-30T10:00")
    assert span(apia.named("2011-12-30")) == ("2011-12-30T10:00", "2011-12-30T22:00")


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (
            "daily",
            [
                "2026-02-30",
                "2026-13-01",
                "2026-3-19",
                "20260319",
                "2026-03-19 ",
                "2026-03-19\n",
                "٢٠٢٦-٠٣-١٩",
                "",
                "2026-W12",
            ],
        ),
        (
            "weekly",
            ["2026-W54", "2026-W00", "2027-W53", "2026-w12", "2026-W1", "2026-W12-1", "2026W12", "2026-12", "-026-W12"],
        ),
        ("monthly", ["2026-00", "2026-13", "2026-3", "2026-03-01", "+2026-03", "２０２６-03"]),
        ("daily", ["1969-12-31", "3000-01-01", "0000-01-01", "9999-12-31"]),
        ("weekly", ["1969-W52", "9999-W52", "3001-W01", "0001-W01"]),
        ("monthly", ["1969-12", "3000-01", "0000-01", "9999-12"]),
    ],
)
def test_a_malformed_impossible_or_far_label_is_invalid(kind: str, labels: list[str]) -> None:
    of = calendar(kind)
    for label in labels:
        with pytest.raises(InvalidPeriod, match=f"A {kind} period"):
            of.named(label)


@pytest.mark.parametrize("kind", ["daily", "weekly", "monthly"])
def test_the_first_and_the_last_periods_have_whole_spans_and_an_end(kind: str) -> None:
    for zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
        of = calendar(kind, timezone=zone)
        for instant, beyond in (("1970-01-10T00:00", -86400.0 * 60), ("2999-12-20T00:00", 86400.0 * 60)):
            period = at(of, instant)
            assert period.start < period.end
            assert of.at(period.start + beyond) is None
            assert of.before(period.start + beyond) is None
    first = calendar("monthly").named("1970-01")
    assert first.previous is None
    assert calendar("monthly").before(first.start) is None


def test_an_instant_that_is_no_number_lies_in_no_period() -> None:
    assert calendar("daily").at(float("nan")) is None
    assert calendar("daily").at(float("inf")) is None


def test_a_calendar_forgets_nothing_when_asked_back_and_forth() -> None:
    of = calendar("daily")
    days = [date(2026, 3, 1) + timedelta(days=n) for n in range(40)]
    for day in [*days, *reversed(days), *days[::7]]:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()
        period = of.at(noon)
        assert period is not None
        assert period.label == day.isoformat()
        before = of.before(noon)
        assert before is not None
        assert before.label == (day - timedelta(days=1)).isoformat()


def test_asking_within_one_period_computes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counting(local: datetime, zone: ZoneInfo) -> float:
        nonlocal calls
        calls += 1
        return first_instant(local, zone)

    monkeypatch.setattr("gateway.periods.dated.first_instant", counting)
    of = calendar("weekly", timezone="Europe/London")
    of.at(utc("2026-03-19T00:00"))
    of.before(utc("2026-03-19T00:00"))
    computed = calls
    for second in range(1000):
        assert of.at(utc("2026-03-19T00:00") + second) is not None
        assert of.before(utc("2026-03-19T00:00") + second) is not None
    assert calls == computed


PRINT_PERIODS = """
from datetime import datetime, UTC
from gateway.periods import calendar_for
boundary = datetime(2026, 3, 16, tzinfo=UTC).timestamp()
for kind, zone in (("weekly", "UTC"), ("daily", "UTC"), ("daily", "Europe/London"), ("monthly", "America/New_York")):
    for wall in (boundary - 1, boundary, boundary + 86400 * 15 + 3600 * 4):
        print(calendar_for(kind, timezone=zone, period_format="%Y%m%d").at(wall))
"""


def test_the_hosts_own_time_zone_changes_nothing() -> None:
    seen = set()
    for host in ("UTC", "Asia/Tokyo", "America/Los_Angeles", "Pacific/Kiritimati"):
        done = subprocess.run(
            [sys.executable, "-c", PRINT_PERIODS],
            env={"TZ": host},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        seen.add(done.stdout)
    (printed,) = seen
    weeks = printed.splitlines()[:2]
    assert "label='2026-W11'" in weeks[0]
    assert "label='2026-W12'" in weeks[1]
