"""Boards of families with periods, kept when asked for: restored in an outage, archived once their period is final."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PatientGateway
from tests.servers import RedisServer, eventually

pytestmark = [pytest.mark.xdist_group("lastknown"), pytest.mark.timeout(300)]

RED, BLUE = (f"/v1/leaderboards/clan-{name}/top" for name in ("red", "blue"))


def settings(redis: RedisServer, folder: Path, *, families: bool) -> dict[str, Any]:
    return {
        "redis": {"primary": redis.url},
        "last_known": {"store": f"file://{folder}", "interval_s": 1, "families": families},
        "leaderboards": [
            {
                "name": "clan-<id>",
                "key": "lb:{clan:<id>}:<period>",
                "ttl_ms": 100,
                "grace_ms": 600,
                "seasons": [
                    {"label": "past", "start": "2020-03-01", "end": "2020-06-01"},
                    {"label": "running", "start": "2020-06-01", "end": "2999-06-01"},
                ],
            }
        ],
    }


@pytest.mark.parametrize("families", [True, False])
def test_families_are_restored_and_archived_only_when_asked_for(tmp_path: Path, families: bool) -> None:
    with RedisServer() as redis:
        redis.call("ZADD", "lb:{clan:red}:past", 7, "ann", 5, "bob")
        redis.call("ZADD", "lb:{clan:red}:running", 3, "cyd")
        with PatientGateway(settings(redis, tmp_path, families=families)) as gateway:
            eventually(lambda: gateway.get(RED)[0] == 200, what="Redis is not held up just now")
            assert gateway.json(RED)["entries"][0]["member"] == "cyd"
            gateway.stop()
            assert bool(list(tmp_path.glob("last/clan-red*"))) is families
            gateway.start()  # the clans that were restored are those whose former seasons are archived
            if families:
                # Within two seconds, or else, if Redis is held up just then, in the next turn a minute later.
                archived = "archive/clan-red*.board"
                eventually(lambda: list(tmp_path.glob(archived)), within_s=120, what="the past season is archived")
            gateway.stop()
            redis.kill()
            gateway.start()
            status, headers, body = gateway.get(RED)
            past = gateway.get(f"{RED}?period=past")
            if not families:
                assert (status, past[0]) == (503, 503)
                return
            assert (status, json.loads(body)["stale"], json.loads(body)["total"]) == (200, True, 1)
            assert "leaderboard-stale" in headers
            assert [row["member"] for row in json.loads(past[2])["entries"]] == ["ann", "bob"]
            assert json.loads(past[2])["stale"] is False, "what is final is as good as on the day it was read"
            assert gateway.json("/v1/leaderboards/clan-red/members/bob?period=past")["rank"] == 2
            assert gateway.get(BLUE)[0] == 503
