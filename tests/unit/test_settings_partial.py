"""Files with several faults: none hides another, and none brings about a problem that goes away with it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Problem, SettingsError
from gateway.settings import SECTIONS, LeaderboardSettings, load
from tests.unit.test_settings import BOARD_FAULTS

Problems = Callable[..., set[tuple[str, str]]]

REDIS = '[redis]\nprimary = "redis://a"\n'
BOARD = '[[leaderboards]]\nname = "a"\nkey = "a"\n'
WRONG = [[1]]
"""What no key takes, in TOML and JSON alike."""

REDIS_FAULTS: list[dict[str, Any]] = [
    {},
    {"primary": "redis://a", "cluster": ["b:1"]},
    {"sentinels": ["b:1"]},
    {"primary": "redis://a", "service": "s", "sentinel_username": "u"},
    {"cluster": ["b:1"], "replicas": ["redis://a"]},
    {"primary": "redis://a", "username": "u"},
    {"primary": "redis://a", "password_file": "/no/such/file"},
    {"primary": "redis://a/0", "replicas": ["rediss://b/1"]},
    {"primary": "redis://a", "tls_ca_file": "/no/such/file"},
    {"primary": "redis://a", "read_timeout_ms": 501},
    {"primary": "redis://a", "request_budget_ms": 199},
]


@pytest.fixture
def problems(tmp_path: Path) -> Problems:
    """Load a file; return what is wrong with it, each problem as its path and message."""

    def of(text: str, environ: Mapping[str, str] | None = None) -> set[tuple[str, str]]:
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        listed: tuple[Problem, ...] = ()
        try:
            load(path, environ or {})
        except SettingsError as error:
            listed = tuple(error.problems)
        assert len(set(listed)) == len(listed), "a problem is listed twice"
        return {(problem.path, problem.message) for problem in listed}

    return of


def paths(found: set[tuple[str, str]]) -> set[str]:
    return {path for path, _ in found}


def redis_text(table: Mapping[str, Any]) -> str:
    return "[redis]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def board_environ(*tables: Mapping[str, Any]) -> dict[str, str]:
    return {"GATEWAY_LEADERBOARDS": json.dumps(tables, default=str)}


def test_form_errors_unknown_keys_and_contradictions_are_listed_together(problems: Problems) -> None:
    text = """
[redis]
primary = "redis://a"
cluster = ["b:1"]
read_timeout_ms = 501
max_lag_ms = 1
retries = 3
[last_known]
keep_s = 1
backend = "file"
[[leaderboards]]
name = "a"
key = "a"
grace_ms = 499
backend = "x"
[[leaderboards]]
name = "a"
key = "b"
grace_ms = 499
order = "up"
[[leaderboards]]
name = "c-<id>"
key = "c:<id>"
placeholders = { id = "(", x = 3 }
"""
    assert paths(problems(text)) == {
        "redis",
        "redis.read_timeout_ms",
        "redis.max_lag_ms",
        "redis.retries",
        "last_known.keep_s",
        "last_known.backend",
        "leaderboards[0].grace_ms",
        "leaderboards[0].backend",
        "leaderboards[1].grace_ms",
        "leaderboards[1].order",
        "leaderboards[1].name",
        "leaderboards[2].placeholders.id",
        "leaderboards[2].placeholders.x",
    }


@pytest.mark.parametrize("fault", [{"zzzz": 1}, {"max_lag_ms": WRONG}], ids=["unknown", "wrong"])
@pytest.mark.parametrize("table", REDIS_FAULTS, ids=",".join)
def test_a_fault_elsewhere_in_redis_hides_no_contradiction(
    problems: Problems, table: dict[str, Any], fault: dict[str, Any]
) -> None:
    alone = problems(redis_text(table) + BOARD)
    assert alone
    added = problems(redis_text(table | fault) + BOARD) - alone
    assert problems(redis_text(table | fault) + BOARD) >= alone
    assert paths(added) == {f"redis.{key}" for key in fault}


@pytest.mark.parametrize("key", SECTIONS["redis"].model_fields)
def test_a_wrong_key_of_redis_brings_about_no_other_problem(problems: Problems, key: str) -> None:
    for table in REDIS_FAULTS:
        alone = problems(redis_text(table) + BOARD)
        others = problems(redis_text({**table, key: WRONG}) + BOARD)
        own = {path for path in paths(others) if path.startswith(f"redis.{key}")}
        assert own
        # The key is there now, right or wrong: what it says by being there may be said.
        there = problems(redis_text({**table, key: RIGHT.get(key, WRONG)}) + BOARD)
        assert {problem for problem in others if problem[0] not in own} <= alone | there


RIGHT: dict[str, Any] = {
    "primary": "redis://a",
    "replicas": ["redis://b"],
    "sentinels": ["c:1"],
    "service": "s",
    "cluster": ["d:1"],
    "username": "u",
    "password_file": "/etc/hostname",
    "sentinel_username": "u",
    "sentinel_password_file": "/etc/hostname",
}


@pytest.mark.parametrize("fault", [{"zzzz": 1}, {"order": WRONG}], ids=["unknown", "wrong"])
@pytest.mark.parametrize("board", [fault[0] for fault in BOARD_FAULTS])
def test_a_fault_elsewhere_in_a_board_hides_no_contradiction(
    problems: Problems, board: str, fault: dict[str, Any]
) -> None:
    table = tomllib.loads(board)
    alone = problems(REDIS, board_environ(table))
    both = problems(REDIS, board_environ(table | fault))
    assert alone
    assert both >= alone
    assert paths(both - alone) == {f"leaderboards[0].{key}" for key in fault}


SEASONS = [{"label": "s", "start": "2026-01-01", "end": "2026-02-01"}]


@pytest.mark.parametrize("key", LeaderboardSettings.model_fields)
def test_a_wrong_key_of_a_board_brings_about_no_other_problem(problems: Problems, key: str) -> None:
    """But for what seasons contradict by being there, right or wrong."""
    for board in [*(fault[0] for fault in BOARD_FAULTS), 'name = "a"\nkey = "a"', 'name = "<a>"\nkey = "<a>"']:
        table = tomllib.loads(board)
        alone = problems(REDIS, board_environ(table | ({"seasons": SEASONS} if key == "seasons" else {})))
        found = paths(problems(REDIS, board_environ({**table, key: WRONG})))
        own = {path for path in found if path.startswith(f"leaderboards[0].{key}")}
        assert own
        assert found - own <= paths(alone)


@pytest.mark.parametrize("key", ["name", "key"])
def test_a_missing_key_of_a_board_is_one_problem_and_hides_only_its_own(problems: Problems, key: str) -> None:
    for board in {fault[0] for fault in BOARD_FAULTS}:
        table = tomllib.loads(board)
        alone = problems(REDIS, board_environ(table))
        del table[key]
        found = problems(REDIS, board_environ(table))
        assert {path for path, _ in found - alone} == {f"leaderboards[0].{key}"}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('[redis]\nprimry = "redis://a"\n' + BOARD, {"redis.primry"}),
        ('[redis]\nprimary = "redis://a"\nclustered = false\n' + BOARD, {"redis.clustered"}),
        ('[reids]\nprimary = "redis://a"\n' + BOARD, {"reids"}),
        (REDIS + 'username = "u"\npassword = "p"\n' + BOARD, {"redis.password"}),
        (REDIS + '[[leaderboard]]\nname = "a"\nkey = "a"\n', {"leaderboard"}),
        (REDIS + "request_budget_ms = 1500\n" + BOARD + "grace_m = 2000\n", {"leaderboards[0].grace_m"}),
        (REDIS + "request_budget = 100\n" + BOARD + "grace_ms = 200\n", {"redis.request_budget"}),
        (REDIS + BOARD.replace('"\n', ':<period>"\n').replace("a:<period>", "a", 1) + 'perod = "daily"\n', None),
        (REDIS + BOARD + 'read_from = "primary"\nttl_ms=1\ngrace_ms=500\nedge_ttl_s=1\nclient_ttl=1\n', None),
    ],
)
def test_a_misspelt_key_is_not_taken_for_a_missing_one(
    problems: Problems, written: str, found: set[str] | None
) -> None:
    """The key that was meant is there once its name is mended, and its default was never meant to hold."""
    listed = paths(problems(written))
    assert len(listed) == 1
    assert found is None or listed == found


def test_everything_wrong_with_periods_is_listed_at_once(problems: Problems) -> None:
    seasons = [
        {"label": "a", "start": "2026-01-01", "end": "2026-02-01"},
        {"label": "{", "start": "soon", "end": "later"},
        {"label": "a", "start": "2026-03-01", "end": "2026-04-01"},
        {"label": "b", "start": "2026-01-15", "end": "2026-02-15"},
        {"label": "c", "start": "2026-06-01", "end": "2026-05-01"},
        {"label": "", "start": "never"},
        {"label": "e", "start": "2026-07-01", "end": "2026-07-08"},
        {"label": "f", "start": "2026-07-09", "end": "2026-07-10"},
    ]
    board = {"name": "a", "key": "a:<period>", "period_format": "%Y%m", "seasons": seasons}
    assert paths(problems(REDIS, board_environ(board))) == {
        f"leaderboards[0].{key}"
        for key in (
            "seasons[1].label",
            "seasons[1].start",
            "seasons[1].end",
            "seasons[2].label",
            "seasons[3].start",
            "seasons[4].end",
            "seasons[5].label",
            "seasons[5].start",
            "seasons[5].end",
            "period_format",
        )
    }
    daily = {"name": "a", "key": "a:<period>", "period": "daily", "timezone": "Mars", "starts_at": "25:00"}
    found = problems(REDIS, board_environ(daily | {"period_format": "%Y", "seasons": seasons[:1]}))
    assert paths(found) == {f"leaderboards[0].{key}" for key in ("timezone", "starts_at", "period_format", "seasons")}


def test_boards_that_are_no_json_hide_nothing_and_are_not_taken_for_those_of_the_file(problems: Problems) -> None:
    text = '[redis]\nread_timeout_ms = 501\n[server]\nport = "x"\n' + BOARD + "grace_ms = 1\nzzzz = 1\n"
    found = problems(text, {"GATEWAY_LEADERBOARDS": "[{", "GATEWAY_LOG__LEVEL": "loud"})
    assert paths(found) == {"leaderboards", "redis", "redis.read_timeout_ms", "server.port", "log.level"}
    (message,) = (message for path, message in found if path == "leaderboards")
    assert message.startswith("must be a JSON list of tables: ")
    assert message.endswith(" (from GATEWAY_LEADERBOARDS)")
    assert message.count("GATEWAY_LEADERBOARDS") == 1


def test_an_empty_variable_takes_the_boards_of_the_file_away(problems: Problems) -> None:
    """As it does with every key; that there must be a board is then the problem, and the file's boards are not."""
    (found,) = problems(REDIS + BOARD + "grace_ms = 1\n", {"GATEWAY_LEADERBOARDS": ""})
    assert found[0] == "leaderboards"
    assert found[1].startswith("is required: at least one")
    assert found[1].endswith("(from GATEWAY_LEADERBOARDS)")


def test_a_file_that_is_no_toml_hides_nothing_that_the_environment_says_wrong(problems: Problems) -> None:
    environ = {
        "GATEWAY_SERVER__PORT": "x",
        "GATEWAY_REDIS__REQUEST_BUDGET_MS": "20",
        "GATEWAY_REDIS__READ_TIMEOUT_MS": "30",
        "GATEWAY_SHARED_TIER__TTL_MS": "1",
        "GATEWAY_LEADERBOARDS": '[{"name": "a", "grace_ms": 19}]',
    }
    listed = paths(problems("[redis", environ))
    (file,) = (path for path in listed if path.endswith("gateway.toml"))
    assert listed - {file} == {
        "server.port",
        "redis.read_timeout_ms",
        "leaderboards[0].key",
        "leaderboards[0].grace_ms",
    }


def test_a_table_that_is_none_hides_no_other_and_contradicts_none(problems: Problems) -> None:
    text = 'redis = 3\ncdn = 1\nlast_known = []\nleaderboards = [3, {name = "a", key = "a:<id>", grace_ms = 1}]\n'
    assert paths(problems(text)) == {"redis", "cdn", "last_known", "leaderboards[0]", "leaderboards[1].key"}


def test_a_faulty_edge_hides_no_other(problems: Problems) -> None:
    purge = [{"edge": "akamai"}, {"edge": "fastly", "zzzz": 1}, 3, {"edge": "varnish", "url": 3}, {"edge": "varnish"}]
    assert paths(problems(REDIS + BOARD, {"GATEWAY_CDN__PURGE": json.dumps(purge)})) == {
        "cdn.purge[0].edge",
        "cdn.purge[1].zzzz",
        "cdn.purge[1].service",
        "cdn.purge[1].token_file",
        "cdn.purge[2]",
        "cdn.purge[3].url",
        "cdn.purge[4].url",
    }


def test_the_right_items_of_a_faulty_list_are_checked(problems: Problems) -> None:
    text = '[redis]\nprimary = "redis://a/0"\nreplicas = ["rediss://b/1", 3]\n' + BOARD
    found = problems(text)
    assert paths(found) == {"redis.replicas", "redis.replicas[1]"}
    assert len(found) == 3
