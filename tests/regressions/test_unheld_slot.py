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


def test_reads_of_a_slot_that_nobody_holds_do_not_fail_those_of_its_neighbours(stack: contextlib.ExitStack) -> None:
    cluster = stack.enter_context(RedisCluster())
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    owner = cluster.owner("lb:s")
    key = next(key for number in range(100) if cluster.owner(key := f"lb:{number}") is owner)
    for board in ("lb:s", key):
        cluster.write("ZADD", board, 1, "ann", 2, "bob")
    boards = [{"name": "gone", "key": "lb:s"}, {"name": "other", "key": key}]
    gateway = stack.enter_context(Gateway({"redis": cluster.settings, "leaderboards": boards}))
    for path in (GONE, OTHER):
        assert gateway.json(path)["rank"] == 2
    slot = key_slot(b"lb:s")
    for node in (owner, *(node for node in cluster.nodes if node is not owner)):  # else its gossip gives it back
        with contextlib.suppress(redis.ResponseError):  # "already unassigned"
            node.call("CLUSTER", "DELSLOTS", slot)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:  # learning of it may cost both boards a moment
        gateway.get(GONE)
        time.sleep(0.02)
    for _ in range(40):
        status, headers, _ = gateway.get(GONE)
        assert status == 503 or "leaderboard-stale" in headers
        assert not gateway.json(OTHER)["stale"]
        time.sleep(0.02)
    owner.call("CLUSTER", "ADDSLOTS", slot)
    eventually(lambda: gateway.get(GONE)[0] == 200 and not gateway.json(GONE)["stale"], within_s=8)
    gateway.stop()
