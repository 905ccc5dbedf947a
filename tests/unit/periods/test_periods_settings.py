"""Building calendars from settings: key forms, seasons, and every refusal with the key's name."""

from __future__ import annotations

import locale
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from gateway.errors import InvalidPeriod, PeriodNotFound
from gateway.periods import Calendar, CalendarError, Season, calendar_for
from gateway.periods.keyform import compile_form


def build(period: str, **settings: Any) -> Calendar:
    built = calendar_for(period, **settings)
    assert built is not None
    return built


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_board_without_periods_has_no_calendar() -> None:
    assert calendar_for("none") is None


@pytest.mark.parametrize(
    ("kind", "form", "part"),
    [
        ("daily", None, "2026-03-19"),
        ("daily", "%Y%m%d", "20260319"),
        ("daily", "%Y:%j", "2026:078"),
        ("daily", "%-d.%-m.%Y", "19.3.2026"),
        ("daily", "%d%b%y", "19Mar26"),
        ("weekly", "%G%V", "202612"),
        ("weekly", "%Y-%m-%d", "2026-03-16"),
        ("monthly", "%B_%Y", "March_2026"),
        ("monthly", "100%%-%Y%m", "100%-202603"),
    ],
)
def test_the_key_part_is_the_local_start_date_in_the_boards_form(kind: str, form: str | None, part: str) -> None:
    period = build(kind, period_format=form, timezone="Asia/Tokyo").at(utc("2026-03-19T12:00"))
    assert period is not None
    assert period.key_part == part


def test_the_form_of_a_week_from_sunday_on_is_that_of_its_sunday() -> None:
    week = build("weekly", week_starts="sunday", period_format="%Y%m%d").named("2026-W12")
    assert week.key_part == "20260315"


def test_forms_agree_with_the_c_library_in_the_c_locale() -> None:
    directives = "%Y %y %m %d %j %B %b %A %a %u %w %G %g %V %U %W %-d %-m %-j %%"
    write = compile_form(directives)
    for n in range(0, 40 * 366, 11):
        day = date(1999, 12, 20) + timedelta(days=n)
        assert write(day) == day.strftime(directives)


@pytest.fixture
def french() -> Iterator[None]:
    """Set a locale with other month names, where the machine has one; the names must be English in any case."""
    before = locale.setlocale(locale.LC_TIME)
    for name in ("fr_FR.UTF-8", "de_DE.UTF-8", "C.UTF-8"):
        try:
            locale.setlocale(locale.LC_TIME, name)
            break
        except locale.Error:
            continue
    yield
    locale.setlocale(locale.LC_TIME, before)


def test_month_names_do_not_follow_the_locale(french: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_form("%d %B %A")(date(2026, 3, 19)) == "19 March Thursday"
    assert "strftime" not in compile_form.__code__.co_names  # whatever locales this machine has


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("weekly", "%Y-%V"),  # 2024-12-30 would be week 1 of 2024 again
        ("weekly", "%Y%m"),
        ("daily", "%m%d"),
        ("daily", "%-m%-d-%Y"),  # 1-11 and 11-1
        ("daily", "%G-%V"),
        ("monthly", "%B"),
        ("monthly", "month"),
        ("daily", ""),
    ],
)
def test_a_form_that_gives_two_periods_one_key_is_refused(kind: str, form: str) -> None:
    with pytest.raises(CalendarError, match="the same key") as caught:
        calendar_for(kind, period_format=form)
    assert caught.value.key == "period_format"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("timezone", "Mars/Olympus", "no time zone 'Mars/Olympus'"),
        ("timezone", "", "no time zone"),
        ("timezone", "Europe", "no time zone"),
        ("timezone", "../../etc/passwd", "no time zone"),
        ("timezone", "localtime", "not a zone of its own"),
        ("timezone", "right/UTC", "not a zone of its own"),
        ("starts_at", "24:00", "not a time"),
        ("starts_at", "5:00", "not a time"),
        ("starts_at", "05:00:00", "not a time"),
        ("week_starts", "mon", "monday, tuesday"),
        ("period_format", "%H", "'%H' is not a directive"),
        ("period_format", "%Y%", "'%' is not a directive"),
        ("period_format", "%-%", "not a directive"),
        ("period_format", "%s", "not a directive"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(key: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}: ") as caught:
        calendar_for("weekly", **{key: value})  # type: ignore[arg-type]  # text settings only
    assert says in str(caught.value)
    assert isinstance(caught.value, CalendarError)
    assert caught.value.key == key


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(CalendarError, match="period: 'hourly' is not one of none, seasons, daily, weekly, monthly"):
        calendar_for("hourly")


SPRING = Season("spring", "2026-03-01", "2026-06-01")
SUMMER = Season("Summer 26", "2026-06-01", "2026-09-01T12:00:00")
WINTER = Season("winter", date(2026, 12, 1), datetime(2027, 3, 1, tzinfo=timezone(timedelta(hours=5))))


@pytest.fixture
def seasons() -> Calendar:
    return build("seasons", seasons=[WINTER, SPRING, SUMMER], timezone="Europe/London", starts_at="06:00")


def test_seasons_are_local_half_open_and_in_order_of_time(seasons: Calendar) -> None:
    summer = seasons.named("Summer 26")
    assert (summer.kind, summer.previous, summer.key_part) == ("seasons", "spring", "Summer 26")
    assert summer.start == utc("2026-06-01T05:00")  # 06:00 in London, as a date alone stands for
    assert summer.end == utc("2026-09-01T11:00")
    assert seasons.named("spring").previous is None
    assert seasons.named("winter").end == utc("2027-02-28T19:00")  # with an offset of its own
    assert seasons.at(summer.start) == summer
    assert seasons.at(summer.start - 0.001) == seasons.named("spring")


def test_between_seasons_there_is_no_current_one_and_the_previous_is_the_last_that_ended(seasons: Calendar) -> None:
    gap = utc("2026-10-01T00:00")
    assert seasons.at(gap) is None
    assert seasons.before(gap) == seasons.named("Summer 26")
    assert seasons.at(utc("2026-01-01T00:00")) is None
    assert seasons.before(utc("2026-03-02T00:00")) is None
    assert seasons.at(utc("2028-01-01T00:00")) is None
    assert seasons.before(utc("2028-01-01T00:00")) == seasons.named("winter")
    assert seasons.before(utc("2027-01-01T00:00")) == seasons.named("Summer 26")


def test_a_season_is_found_again_within_itself(seasons: Calendar) -> None:
    noon = utc("2026-07-01T12:00")
    assert seasons.at(noon) is seasons.at(noon + 1)


def test_a_season_that_is_not_listed_is_not_found_and_a_malformed_label_is_invalid(seasons: Calendar) -> None:
    for label in ("autumn", "2026-W12", "Spring"):
        with pytest.raises(PeriodNotFound):
            seasons.named(label)
    for label in ("", "x" * 65, "a\x00b", " spring", "{spring}", "a\nb", "current"):
        with pytest.raises(InvalidPeriod):
            seasons.named(label)


def test_season_keys_take_the_form_of_their_first_local_day() -> None:
    of = build("seasons", seasons=[SPRING, WINTER], period_format="s%y%m", timezone="Pacific/Kiritimati")
    assert [of.named(label).key_part for label in ("spring", "winter")] == ["s2603", "s2612"]
    aware = Season("a", "2026-02-28T20:00:00Z", "2026-04-01T00:00:00Z")
    assert (
        build("seasons", seasons=[aware], period_format="%Y%m%d", timezone="Asia/Tokyo").named("a").key_part
        == "20260301"
    )


def test_seasons_given_mean_seasons_without_another_word() -> None:
    assert build("none", seasons=[SPRING]).kind == "seasons"


@pytest.mark.parametrize(
    ("given", "key", "says"),
    [
        ([SPRING, Season("b", "2026-05-31", "2026-07-01")], "seasons[1].start", "season 'b' overlaps season 'spring'"),
        ([Season("b", "2026-05-31", "2026-07-01"), SPRING], "seasons[0].start", "season 'b' overlaps season 'spring'"),
        ([SPRING, Season("b", "2026-04-01", "2026-05-01")], "seasons[1].start", "overlaps"),
        ([SPRING, SPRING], "seasons[1].label", "two seasons 'spring'"),
        ([Season("a", "2026-05-01", "2026-05-01")], "seasons[0].end", "ends before it has begun"),
        ([Season("a", "2026-05-01", "2026-02-30")], "seasons[0].end", "'2026-02-30' is not a date"),
        ([Season("a", "soon", "2026-02-03")], "seasons[0].start", "'soon' is not a date"),
        ([Season("current", "2026-05-01", "2026-05-02")], "seasons[0].label", "'current'"),
        ([Season("a{b}", "2026-05-01", "2026-05-02")], "seasons[0].label", "braces"),
    ],
)
def test_seasons_that_make_no_sense_are_refused_by_name(given: list[Season], key: str, says: str) -> None:
    with pytest.raises(CalendarError) as caught:
        calendar_for("seasons", seasons=given)
    assert caught.value.key == key
    assert says in caught.value.message


def test_seasons_whose_form_is_the_same_are_refused() -> None:
    with pytest.raises(
        CalendarError, match=r"^period_format: seasons 'spring' and 'Summer 26' would have the same key"
    ):
        calendar_for("seasons", seasons=[SPRING, SUMMER], period_format="%Y")


def test_seasons_and_a_kind_of_period_exclude_each_other() -> None:
    with pytest.raises(CalendarError, match=r"^seasons: .*not both"):
        calendar_for("daily", seasons=[SPRING])
    with pytest.raises(CalendarError, match=r"^seasons: .*at least one"):
        calendar_for("seasons")
