"""Names and periods in URLs become targets: exact names, families, placeholders, aliases and their boundaries."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import MappingProxyType

import pytest

from gateway.boards import Boards
from gateway.errors import InvalidPeriod, LeaderboardNotFound, PeriodNotFound
from gateway.model import Board
from gateway.periods import Season, calendar_for

ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2026-03-19T12:00:00")
DAILY = Board(name="daily", key="lb:{daily}:<period>", calendar=calendar_for("daily"))
SEASONS = Board(
    name="arena",
    key="arena:<period>",
    calendar=calendar_for(
        "seasons",
        seasons=[Season("spring", "2026-03-01", "2026-04-01"), Season("summer", "2026-06-01", "2026-07-01")],
    ),
)


def family(name: str, key: str, **patterns: re.Pattern[str]) -> Board:
    return Board(name=name, key=key, placeholders=MappingProxyType(patterns))


def test_an_exact_name_leads_to_its_key() -> None:
    target = Boards([Board(name="downloads", key="lb:downloads", profiles="lb:names")]).resolve("downloads", None, NOON)
    assert (target.leaderboard, target.key, target.profiles_key) == ("downloads", b"lb:downloads", b"lb:names")
    assert target.period is None


@pytest.mark.parametrize(
    "name", ["downloads ", "Downloads", "download", "", "clan-", "clan-a b", "clan-a\n", "xclan-1"]
)
def test_a_name_that_nobody_configured_is_not_found(name: str) -> None:
    boards = Boards([Board(name="downloads", key="k"), family("clan-<id>", "clan:<id>", id=ID)])
    with pytest.raises(LeaderboardNotFound):
        boards.resolve(name, None, NOON)


def test_an_exact_name_wins_over_a_family_whatever_their_order() -> None:
    members = [family("clan-<id>", "clan:<id>", id=ID), Board(name="clan-staff", key="staff")]
    for boards in (Boards(members), Boards(members[::-1])):
        assert boards.resolve("clan-staff", None, NOON).key == b"staff"
        assert boards.resolve("clan-7", None, NOON).key == b"clan:7"


def test_several_placeholders_each_have_a_pattern_of_their_own() -> None:
    region, number = re.compile("eu|us"), re.compile("[0-9]{1,3}")
    boards = Boards([family("<region>-guild-<n>", "g:{<region>}:<n>", region=region, n=number)])
    assert boards.resolve("eu-guild-42", None, NOON).key == b"g:{eu}:42"
    for name in ("fr-guild-42", "eu-guild-4200", "eu-guild-x"):
        with pytest.raises(LeaderboardNotFound):
            boards.resolve(name, None, NOON)


def test_a_placeholder_that_stands_twice_has_one_value() -> None:
    boards = Boards([family("<id>-vs-<id>", "<id>", id=ID)])
    assert boards.resolve("a-vs-a", None, NOON).key == b"a"
    with pytest.raises(LeaderboardNotFound):
        boards.resolve("a-vs-b", None, NOON)


def test_an_operators_own_groups_and_flags_stay_inside_their_placeholder() -> None:
    pattern = re.compile("(?i)(a|b)(?P<tail>c)?")
    boards = Boards([family("X-<id>", "k:<id>", id=pattern)])
    assert boards.resolve("X-AC", None, NOON).key == b"k:AC"
    with pytest.raises(LeaderboardNotFound):
        boards.resolve("x-ac", None, NOON)


def test_a_value_that_looks_like_a_placeholder_is_not_filled_in_again() -> None:
    anything = re.compile(".+")
    boards = Boards([family("<id>/<other>", "<id>:<other>", id=anything, other=anything)])
    assert boards.resolve("<other>/x", None, NOON).key == b"<other>:x"


def test_hash_tags_and_unknown_angle_brackets_stay_as_they_are() -> None:
    target = Boards([Board(name="a<b>", key="{lb}:<b>:<period>")]).resolve("a<b>", None, NOON)
    assert target.key == b"{lb}:<b>:<period>"


def test_names_beyond_ascii_reach_the_key_as_utf_8() -> None:
    assert (
        Boards([family("клан-<id>", "к:<id>", id=re.compile(".+"))]).resolve("клан-ё", None, NOON).key == "к:ё".encode()
    )


def test_current_is_the_default_and_changes_at_the_boundary_to_the_second() -> None:
    boards, midnight = Boards([DAILY]), at("2026-03-20T00:00:00")
    for period in (None, "current"):
        assert boards.resolve("daily", period, midnight - 0.001).key == b"lb:{daily}:2026-03-19"
        assert boards.resolve("daily", period, midnight).key == b"lb:{daily}:2026-03-20"
        assert boards.resolve("daily", period, midnight - 1).key == b"lb:{daily}:2026-03-19"  # a clock set back


def test_previous_and_labels_name_other_periods() -> None:
    boards = Boards([DAILY])
    assert boards.resolve("daily", "previous", NOON).label == "2026-03-18"
    assert boards.resolve("daily", "2026-01-31", NOON).key == b"lb:{daily}:2026-01-31"
    assert boards.resolve("daily", "2026-03-19", NOON) == boards.resolve("daily", None, NOON)


@pytest.mark.parametrize("period", ["current", "previous", "2026-03-19", ""])
def test_a_board_without_periods_takes_none(period: str) -> None:
    with pytest.raises(InvalidPeriod):
        Boards([Board(name="all", key="k")]).resolve("all", period, NOON)


@pytest.mark.parametrize("period", ["", "yesterday", "2026-02-30", "2026-3-1", "Current", "2026-03"])
def test_a_malformed_label_is_invalid(period: str) -> None:
    with pytest.raises(InvalidPeriod):
        Boards([DAILY]).resolve("daily", period, NOON)


def test_between_two_seasons_there_is_no_current_one_but_a_previous_one() -> None:
    boards, gap = Boards([SEASONS]), at("2026-05-01T00:00:00")
    with pytest.raises(PeriodNotFound):
        boards.resolve("arena", None, gap)
    with pytest.raises(PeriodNotFound):
        boards.resolve("arena", "previous", at("2026-03-15T00:00:00"))
    assert boards.resolve("arena", "previous", gap).key == b"arena:spring"
    assert boards.resolve("arena", "previous", at("2026-06-15T00:00:00")).label == "spring"
    assert boards.resolve("arena", "previous", at("2026-07-01T00:00:00")).label == "summer"


def test_a_resolution_tells_until_when_the_same_words_mean_it() -> None:
    boards = Boards([DAILY, SEASONS])
    midnight = at("2026-03-20T00:00:00")
    assert boards.resolution("daily", None, NOON).until == midnight
    assert boards.resolution("daily", "previous", NOON).until == midnight
    assert boards.resolution("daily", "2026-03-19", NOON).until == float("inf")
    gap = at("2026-05-01T00:00:00")
    assert boards.resolution("arena", "previous", gap).until == pytest.approx(at("2026-07-01T00:00:00"), abs=0.01)
    after = at("2026-08-01T00:00:00")
    assert boards.resolution("arena", "previous", after).until > after + 366 * 86400


def test_the_next_boundary_of_all_boards_is_the_earliest_one() -> None:
    boards = Boards([Board(name="all", key="k"), SEASONS, DAILY])
    assert boards.boundary(NOON) == at("2026-03-20T00:00:00")
    assert Boards([Board(name="all", key="k")]).boundary(NOON) == float("inf")


def test_names_that_clients_invent_do_not_grow_what_is_kept() -> None:
    boards = Boards([family("clan-<id>", "clan:<id>", id=ID)])
    for number in range(10_000):
        boards.resolve(f"clan-{number}", None, NOON)
    assert len(boards._kept) <= 4096


def test_the_catalogue_is_the_settings_own_list() -> None:
    given = [family("clan-<id>", "clan:<id>", id=ID), DAILY]
    assert list(Boards(given).catalogue) == given
