"""The whole gateway while its whole cluster is away: the top is served with its mark, and all is well soon after."""

from __future__ import annotations

import contextlib

import pytest

from tests.servers import Gateway, RedisCluster, eventually

pytestmark = pytest.mark.xdist_group("failover")

TOP = "/v1/leaderboards/s/top"
BOB = "/v1/leaderboards/s/members/bob"


def test_b5_the_whole_cluster_down_once_is_survived_without_a_restart(stack: contextlib.ExitStack) -> None:
    cluster = stack.enter_context(RedisCluster())
    cluster.write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    redis = {**cluster.settings, "read_timeout_ms": 2000, "request_budget_ms": 5000}
    gateway = stack.enter_context(
        Gateway({"redis": redis, "leaderboards": [{"name": "s", "key": "s", "grace_ms": 5000}]})
    )
    assert [entry["member"] for entry in gateway.json(TOP)["entries"]] == ["cyd", "bob", "ann"]
    assert gateway.json(BOB)["rank"] == 2

    for node in cluster.nodes:
        node.call("SAVE")
    for node in cluster.nodes:
        node.kill()
    eventually(lambda: gateway.json(TOP)["stale"], what="the top is served with the stale mark")
    status, headers, _ = gateway.get(TOP)
    assert (status, "leaderboard-stale" in headers) == (200, True)
    member = gateway.json(BOB)  # all that was asked for lies inside the last known top
    assert (member["rank"], member["stale"]) == (2, True)
    status, headers, _ = gateway.get("/v1/leaderboards/s/members/nobody")
    assert (status, headers["cache-control"], "retry-after" in headers) == (503, "no-store", True)

    for node in cluster.nodes:
        node.start(wait=False)
    cluster.wait_ok()
    eventually(lambda: not gateway.json(TOP)["stale"] and not gateway.json(BOB)["stale"], within_s=15)
    cluster.write("ZADD", "s", 40, "bob")
    eventually(lambda: gateway.json(BOB)["rank"] == 1)
    gateway.stop()
