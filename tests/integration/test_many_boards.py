"""Many boards at once on a healthy Redis: those that have not begun are empty boards, and a bad one blocks no other."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.servers import Gateway, RedisGroup, RedisServer, eventually

MANY = 600
"""More than ten times what may be confirmed one by one in a second."""

LIVES = {"ttl_ms": 500, "grace_ms": 2500}
LIMITS = {"read_timeout_ms": 2500, "request_budget_ms": 2500, "max_lag_ms": 60_000}
"""With which a node that a busy machine stops for two seconds is neither away nor behind."""


def test_hundreds_of_boards_that_have_not_begun_are_ready_empty_and_never_refused() -> None:
    """At a start, and whenever all of them are due again: none is stale or refused, and the primary is asked seldom."""
    with RedisGroup(replicas=2) as redis:
        # A season rather than days: the test may run over midnight.
        season: dict[str, Any] = {"seasons": [{"label": "long", "start": "2020-01-01", "end": "2999-01-01"}]}
        boards = [{"name": f"day-{n}", "key": f"lb:{n}:<period>", **season, **LIVES} for n in range(MANY)]
        settings = {
            "redis": {**redis.settings, **LIMITS},
            "leaderboards": boards,
        }
        with Gateway(settings) as gateway, ThreadPoolExecutor(8) as pool:
            assert gateway.json("/readyz")["leaderboards"] == {"fresh": MANY, "last_known": 0, "missing": 0}
            for pause_s in (1.1, 1.1, 3.2):
                time.sleep(pause_s)  # everything is in grace, and the last time past it
                answers = list(pool.map(lambda n: gateway.get(f"/v1/leaderboards/day-{n}/top"), range(MANY)))
                assert {status for status, _, _ in answers} == {200}
                assert all("leaderboard-stale" not in headers for _, headers, _ in answers)
                assert all(json.loads(body)["total"] == 0 for _, _, body in answers)
            assert gateway.metric("gateway_redis_confirmations_total", outcome="refused") == 0
            windows = redis.primary.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
            assert windows < MANY / 10, "the primary is asked whether keys exist, not for them"
            redis.write("ZADD", "lb:7:" + gateway.json("/v1/leaderboards/day-7")["period"]["label"], 1, "ann")
            eventually(lambda: gateway.json("/v1/leaderboards/day-7/top")["total"] == 1)


def test_a_key_that_the_account_may_not_read_keeps_no_other_board_from_being_served() -> None:
    with RedisServer() as redis:
        redis.call("ZADD", "lb:race", 1, "ann")
        redis.call("ACL", "SETUSER", "default", "resetkeys", "~lb:*")
        boards = [{"name": "race", "key": "lb:race", **LIVES}, {"name": "other", "key": "other:race", **LIVES}]
        settings = {"redis": {"primary": redis.url, **LIMITS}, "leaderboards": boards}
        with Gateway(settings) as gateway:  # waits for /readyz
            assert gateway.json("/readyz")["leaderboards"] == {"fresh": 1, "last_known": 0, "missing": 1}
            assert gateway.get("/v1/leaderboards/other/top")[0] == 503
            assert gateway.json("/v1/leaderboards/race/top")["total"] == 1
