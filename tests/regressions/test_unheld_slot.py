"""A slot that nobody holds, in a cluster that serves the others: only the boards in that slot cannot be read."""

from __future__ import annotations

import contextlib
import time

import pytest
import redis
from redis.crc import key_slot

from tests.servers import Gateway, RedisCluster, eventually

pytestmark = pytest.mark.xdist_group("failover")

GONE, OTHER = "/v1/leaderboards/gone/members/ann", "/v1/leaderboards/other/members/ann"


def is_fresh(gateway: Gateway, path: str) -> bool:
    status, headers, _ = gateway.get(path)
    return status == 200 and "leaderboard-stale" not in headers


def test_reads_of_a_slot_that_nobody_holds_do_not_fail_those_of_its_neighbours(stack: contextlib.ExitStack) -> None:
    cluster = stack.enter_context(RedisCluster())
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    owner = cluster.owner("lb:s")
    key = next(key for number in range(100) if cluster.owner(key := f"lb:{number}") is owner)
    for board in ("lb:s", key):
        cluster.write("ZADD", board, 1, "ann", 2, "bob")
    boards = [{"name": "gone", "key": "lb:s", "grace_ms": 5000}, {"name": "other", "key": key, "grace_ms": 5000}]
    redis_settings = {**cluster.settings, "read_timeout_ms": 2000, "request_budget_ms": 5000, "max_lag_ms": 20_000}
    gateway = stack.enter_context(Gateway({"redis": redis_settings, "leaderboards": boards}))
    for path in (GONE, OTHER):
        assert gateway.json(path)["rank"] == 2
    slot = key_slot(b"lb:s")
    for node in (owner, *(node for node in cluster.nodes if node is not owner)):  # else its gossip gives it back
        with contextlib.suppress(redis.ResponseError):  # "already unassigned"
            node.call("CLUSTER", "DELSLOTS", slot)

    def only_one_is_gone() -> bool:
        for _ in range(40):
            status, headers, _ = gateway.get(GONE)
            if not (status == 503 or "leaderboard-stale" in headers) or not is_fresh(gateway, OTHER):
                return False
            time.sleep(0.02)
        return True

    # Learning of it may cost both boards a moment; then one costs the other nothing, time after time.
    eventually(only_one_is_gone, within_s=60)
    owner.call("CLUSTER", "ADDSLOTS", slot)
    eventually(lambda: is_fresh(gateway, GONE))
    gateway.stop()
