"""Finished periods through the gateway as it runs: archived, served once the key is gone, rebuilt by command."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import archive_cli
from gateway.settings import load
from tests.servers import Gateway, RedisServer, eventually, free_port
from tests.servers.gateway import ROOT

pytestmark = pytest.mark.xdist_group("lastknown")

PAST, RUNNING = "spring 2020", "long"
TOP = "/v1/leaderboards/cup/top?period=spring%202020"
MEMBER = "/v1/leaderboards/cup/members/{}?period=spring%202020"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def gateway(redis: RedisServer, folder: Path) -> Iterator[Gateway]:
    put(redis, PAST, 150)
    put(redis, RUNNING, 3)
    settings = {
        # Long enough that a busy machine does not make Redis one that is away: what is archived a moment after the
        # start would be asked for again half a minute later.
        "redis": {"primary": redis.url, "read_timeout_ms": 2500, "request_budget_ms": 3000},
        "last_known": {"store": f"file://{folder}"},
        "leaderboards": [
            {
                "name": "cup",
                "key": "lb:cup:<period>",
                "ttl_ms": 100,
                "grace_ms": 3000,
                "timezone": "Europe/London",
                "seasons": [
                    {"label": PAST, "start": "2020-03-01", "end": "2020-06-01"},
                    {"label": RUNNING, "start": "2020-06-01", "end": "2999-06-01"},
                ],
            }
        ],
    }
    with Gateway(settings) as running:
        yield running


def put(redis: RedisServer, season: str, members: int, *, plus: int = 0) -> None:
    rows = [word for n in range(1, members + 1) for word in (str(n + plus), f"m{n}")]
    redis.call("ZADD", f"lb:cup:{season}", *rows)


def command(gateway: Gateway, *words: str) -> tuple[int, str, str]:
    """Run ``archive`` with the gateway's own settings; return status and what was printed."""
    line = [sys.executable, "-m", "gateway", "archive", *words, "--config", str(gateway.config)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def gone(gateway: Gateway) -> bool:
    """Whether the last answer from the key itself has gone out of memory: member reads never come from there."""
    status, _, body = gateway.get(MEMBER.format("m1"))
    return status == 404 and json.loads(body)["code"] == "period_not_found"


def test_a_finished_season_is_archived_and_served_in_full_after_its_key_expired(
    gateway: Gateway, redis: RedisServer
) -> None:
    kept = eventually(lambda: command(gateway, "list")[1], what="the season is archived")
    assert kept.startswith(f"cup\t{PAST}\t20")
    assert len(kept.splitlines()) == 1, "the running season is not"
    before = gateway.json(TOP)
    etag = gateway.get(TOP)[1]["etag"]
    redis.call("DEL", f"lb:cup:{PAST}")
    eventually(lambda: gone(gateway), what="m1, who is not among the first hundred, is not found any more")
    time.sleep(3.2)  # the snapshot from before is past its ttl and grace
    status, headers, body = gateway.get(TOP)
    assert status == 200
    assert json.loads(body) == before | {"as_of": json.loads(body)["as_of"]}
    assert before["total"] == 150
    assert len(before["entries"]) == 100
    assert before["stale"] is False
    assert headers["etag"] == etag
    assert "leaderboard-stale" not in headers
    member = gateway.json(MEMBER.format("m150"))
    assert (member["rank"], member["score"], member["total"]) == (1, 150, 150)
    around = gateway.json(MEMBER.format("m100/neighbors").replace("?", "?above=1&below=1&"))
    assert [row["rank"] for row in around["entries"]] == [50, 51, 52]
    status, _, body = gateway.get(TOP.replace("top?", "ranks?from=101&to=150&"))
    assert (status, json.loads(body)["code"]) == (404, "period_not_found")


def test_an_archived_season_outlives_the_process_and_redis(gateway: Gateway, redis: RedisServer) -> None:
    gateway.stop()
    redis.kill()
    gateway.wait_for = "/livez"
    gateway.start()
    found = gateway.json(TOP)
    assert (found["total"], found["entries"][0]["member"], found["stale"]) == (150, "m150", False)
    redis.start()
    put(redis, RUNNING, 3)
    gateway.wait_ready()


def test_rebuilding_replaces_what_is_archived_while_the_key_lives(gateway: Gateway, redis: RedisServer) -> None:
    status, _, errors = command(gateway, "rebuild", "cup", "--period", PAST)
    assert (status, "is gone; what is archived was left as it is" in errors) == (1, True)
    put(redis, PAST, 120, plus=1000)
    status, printed, errors = command(gateway, "rebuild", "cup", "--period", "previous")
    assert (status, errors) == (0, "")
    assert printed.startswith(f"archived cup {PAST}: the first 100 of 120 members, read at 20")
    redis.call("DEL", f"lb:cup:{PAST}")
    gateway.stop()
    gateway.start()
    found = gateway.json(TOP)
    assert (found["total"], found["entries"][0]["score"]) == (120, 1120)


def test_redis_that_does_not_answer_is_a_failure_after_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_cli, "CONNECT_S", 0.2)
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"""
        redis = {{ primary = "redis://127.0.0.1:{free_port()}/0" }}
        last_known = {{ store = "file://{tmp_path}/kept" }}
        [[leaderboards]]
        name = "day"
        key = "lb:<period>"
        period = "daily"
        """
    )
    line = argparse.Namespace(action="rebuild", leaderboard="day", period="2020-01-01")
    assert archive_cli.run(line, load(str(file), {})) == 1
    assert "cannot be read at the moment" in capsys.readouterr().err
