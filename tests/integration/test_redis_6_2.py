"""Redis 6.2 in the shapes that answer otherwise there: slots without names, Sentinel without its newer words."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from redis.crc import key_slot

from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.patience import PATIENT
from tests.servers import REDIS_6_2, RedisCluster, RedisServer, SentinelGroup

pytestmark = pytest.mark.xdist_group("redis_6_2")


async def read_every_route(origin: RealOrigin, key: str) -> None:
    """Read a board of ann 3rd, bob 2nd, cyd 1st, by every script that it has."""
    assert rank(await origin.member(board(key), b"bob")) == 2
    assert [row.member for row in (await origin.window(board(key), 1, 10)).entries] == [b"cyd", b"bob", b"ann"]
    assert [row.rank for row in (await origin.neighbors(board(key), b"bob", 1, 1)).entries] == [1, 2, 3]
    batch = await origin.members(board(key), [b"ann", b"x", b"cyd"])
    assert ([row.rank for row in batch.entries], list(batch.missing)) == ([1, 3], [b"x"])


def reads_of(nodes: list[RedisServer]) -> int:
    return sum(node.commandstats().get("evalsha", 0) for node in nodes)


async def test_a_cluster_of_6_2_is_read_through_its_replicas_and_while_a_slot_moves(
    stack: contextlib.ExitStack,
) -> None:
    cluster = stack.enter_context(RedisCluster(binary=REDIS_6_2, node_timeout_ms=30_000))
    keys = [next(f"lb:{n}" for n in itertools.count() if key_slot(b"lb:%d" % n) in slots) for slots in cluster.ranges]
    for key in keys:
        cluster.write("ZADD", key, 10, "ann", 20, "bob", 30, "cyd")
    async with origin_at({**cluster.settings, **PATIENT}) as origin:
        await soon(lambda: list(origin.states().values()) == ["up"] * 6, what="all six are up")
        assert all(node.version.startswith("6.2.") for node in origin.reads.nodes())
        for key in keys:
            await read_every_route(origin, key)
        assert (await origin.window(board("absent"), 1, 10)).total == 0
        assert reads_of([primary for primary, _ in cluster.shards]) == 0
        assert sum(node.errorstats().get("MOVED", 0) for node in cluster.nodes) == 0
        source, target = cluster.owner(keys[0]), cluster.other_primary(cluster.owner(keys[0]))
        cluster.begin_migration(keys[0], target)
        cluster.move_keys(keys[0], source, target)
        await read_every_route(origin, keys[0])  # its replica says: no such key
        cluster.end_migration(keys[0], target)
        await read_every_route(origin, keys[0])


async def test_sentinels_of_6_2_name_the_nodes_and_their_failover_is_followed(stack: contextlib.ExitStack) -> None:
    group = stack.enter_context(SentinelGroup(binary=REDIS_6_2, down_after_ms=30_000))
    group.write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    async with origin_at({**group.settings, **PATIENT}) as origin:
        await soon(lambda: list(origin.states().values()) == ["up"] * 3, what="all three are up")
        await read_every_route(origin, "s")
        assert reads_of([group.primary]) == 0
        await asyncio.to_thread(group.failover)
        await soon(lambda: origin.roles().get(group.primary.address) == "primary", what="the switch is known")
        await read_every_route(origin, "s")
