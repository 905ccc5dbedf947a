"""Reads survive a failover, a partition and a full outage; what they say is right, and marked where it may be old.

``OUTAGE_SECONDS=20`` makes a full outage as long as the one it stands for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from gateway.errors import OriginUnavailable
from tests.fault.proxy import FaultProxy
from tests.fault.sentinels import FakeSentinel
from tests.fault.watch import PATIENT, QUICK, Load, fill, outage
from tests.origins import board, origin_at, rank, soon
from tests.servers import RedisCluster, RedisGroup, RedisServer, SentinelGroup, free_port

pytestmark = pytest.mark.xdist_group("failover")


@pytest.fixture
async def group(redis_group: RedisGroup) -> AsyncIterator[RedisGroup]:
    fill(redis_group)
    yield redis_group
    redis_group.reset()


async def test_ranks_are_answered_through_a_sentinel_failover_and_marked_while_no_primary_answers(
    stack: contextlib.ExitStack,
) -> None:
    # The one replica is promoted: no other can stand in for it meanwhile; and there is a while before that.
    group = stack.enter_context(SentinelGroup(1, down_after_ms=3000))
    fill(group)
    async with origin_at({**group.settings, **PATIENT}) as origin, Load(origin) as load:
        await load.begin()
        killed_at, killed_wall = time.monotonic(), time.time()
        group.primary.kill()
        await asyncio.to_thread(group.wait_failed_over)
        await load.fresh_again(within_s=30)
        assert origin.roles()[group.primary.address] == "primary"
    assert not load.errors()
    marked = load.stale()
    assert marked, "some answers were given while no primary answered"
    assert all(sample.at > killed_at for sample in marked)
    assert all(sample.as_of <= killed_wall + 0.05 for sample in marked), "as_of is the last instant known in step"
    load.check()


@pytest.mark.parametrize("when_down", ["yes", "no"])
async def test_ranks_are_answered_through_a_cluster_failover_and_the_returned_node_serves_again(
    stack: contextlib.ExitStack, when_down: str
) -> None:
    config = [f"cluster-allow-reads-when-down {when_down}", "cluster-node-timeout 3000"]
    cluster = stack.enter_context(RedisCluster(config=config))
    fill(cluster)
    async with origin_at({**cluster.settings, **PATIENT}) as origin, Load(origin) as load:
        await load.begin()
        killed_at = time.monotonic()
        old = cluster.owner("s")
        promoted = cluster.replica_of(old)
        old.kill()
        await soon(lambda: origin.roles().get(promoted.address) == "primary", within_s=40)
        await load.fresh_again(within_s=30)
        assert load.stale(killed_at)
        old.start()
        await soon(lambda: origin.states().get(old.address) == "up", what="the old primary is a replica")
        await soon(lambda: calls(old) > 0, what="it takes its share")
        await relieved(promoted, by=old)
    refused = [sample for sample in load.samples if sample.error]
    if when_down == "yes":
        assert not refused, refused[:3]
    else:
        # A cluster without one of its shards refuses reads on every node until it has decided (CLUSTERDOWN). That this
        # comes to an end was waited for.
        assert all(isinstance(sample.error, OriginUnavailable) for sample in refused), refused[:3]
    load.check()


async def test_a_sentinel_cut_off_with_the_old_primary_is_not_believed_once_others_answer(
    stack: contextlib.ExitStack,
) -> None:
    old = stack.enter_context(RedisServer())
    new = stack.enter_context(RedisGroup(1))
    old.call("ZADD", "s", 10, "ann", 20, "bob")
    fill(new)
    nodes = [new.primary, *new.replicas]
    async with FakeSentinel(old, []) as cut_off, FakeSentinel(old, []) as second, FakeSentinel(old, []) as third:
        sentinels = [sentinel.address for sentinel in (cut_off, second, third)]
        async with origin_at({"sentinels": sentinels, "service": "leaderboards", **QUICK}) as origin:
            await soon(lambda: origin.states() == {old.address: "up"})
            assert rank(await origin.member(board("s"), b"bob")) == 1
            for sentinel in (second, third):  # the other side of the partition elects a new primary …
                await sentinel.stop()
                sentinel.sees(new.primary, new.replicas, epoch=2)
            await asyncio.sleep(1.5)
            assert rank(await origin.member(board("s"), b"bob")) == 1
            for sentinel in (second, third):  # … and comes back
                await sentinel.start()
            await soon(lambda: origin.states() == {node.address: "up" for node in nodes})
            answers = [await origin.member(board("s"), b"bob") for _ in range(20)]
            assert {rank(answer) for answer in answers} == {2}
            assert not any(answer.stamp.stale for answer in answers)
            for sentinel in (second, third):  # alone again, the one with the old epoch is still not believed
                await sentinel.stop()
            await asyncio.sleep(1.5)
            assert set(origin.states()) == {node.address for node in nodes}


async def test_a_published_switch_is_followed_before_any_question_is_answered(stack: contextlib.ExitStack) -> None:
    one, other = stack.enter_context(RedisServer()), stack.enter_context(RedisServer())
    async with contextlib.AsyncExitStack() as running:
        sentinel = await running.enter_async_context(FakeSentinel(one, []))
        settings = {"sentinels": [sentinel.address], "service": "leaderboards"}
        origin = await running.enter_async_context(origin_at(settings))
        await soon(lambda: origin.roles() == {one.address: "primary"} and sentinel.listeners == 1)
        sentinel.mute = True
        await soon(lambda: sentinel.unanswered > 0, what="a question, and with it the end of the one before")
        sentinel.publish_switch(one, other)
        await soon(lambda: origin.roles() == {other.address: "primary"})


async def test_a_sentinels_connection_that_fell_silent_is_opened_again_and_a_quiet_one_is_kept(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.replicas.sentinel._SILENCE_S", 0.1)
    monkeypatch.setattr("gateway.replicas.sentinel._RELISTEN_S", 0.1)
    one, other = stack.enter_context(RedisServer()), stack.enter_context(RedisServer())
    async with contextlib.AsyncExitStack() as running:
        sentinel = await running.enter_async_context(FakeSentinel(one, []))
        proxy = await running.enter_async_context(FaultProxy(sentinel.port))
        settings = {"sentinels": [proxy.address], "service": "leaderboards"}
        origin = await running.enter_async_context(origin_at(settings))
        await soon(lambda: origin.roles() == {one.address: "primary"})
        await kept(proxy)
        before = proxy.accepted
        proxy.drop()
        await soon(lambda: proxy.accepted > before)
        await proxy.heal()
        proxy.reset()
        await soon(lambda: sentinel.listeners == 1)
        sentinel.mute = True
        await soon(lambda: sentinel.unanswered > 0, what="a question, and with it the end of the one before")

        def followed() -> bool:  # published again and again: whoever is just about to listen hears the next
            sentinel.publish("somebody-else 127.0.0.1 1 127.0.0.1 2")
            sentinel.publish_switch(one, other)
            return origin.roles() == {other.address: "primary"}

        await soon(followed)


async def test_a_cluster_that_went_away_is_found_at_its_old_addresses_and_at_new_ones_behind_the_same_seed(
    stack: contextlib.ExitStack,
) -> None:
    cluster = stack.enter_context(RedisCluster())
    fill(cluster)
    async with contextlib.AsyncExitStack() as running:
        seed = await running.enter_async_context(FaultProxy(cluster.nodes[0].port))
        origin = await running.enter_async_context(origin_at({"cluster": [seed.address], **QUICK}))
        async with Load(origin) as load:
            await load.begin()
            await outage(cluster.nodes, load)
            for node in cluster.nodes:
                node.start(wait=False)
            await asyncio.to_thread(cluster.wait_ok)
            await load.fresh_again(within_s=15)

            await outage(cluster.nodes, load)
            for node in cluster.nodes:
                node.port, node.bus_port = free_port(), free_port()
                node.start(wait=False)
            await asyncio.to_thread(cluster.meet_again)
            seed.target = cluster.nodes[0].port
            await load.fresh_again(within_s=15)
            addresses = {node.address for node in cluster.nodes}
            await soon(lambda: set(origin.states()) == addresses, what="all new addresses, and no old one")
    load.check()


@pytest.mark.parametrize("fault", ["frozen", "killed", "restarted empty"])
async def test_a_replica_in_trouble_costs_no_read_and_no_wrong_answer(group: RedisGroup, fault: str) -> None:
    victim = group.replicas[0]
    async with origin_at({**group.settings, **QUICK}) as origin, Load(origin) as load:
        await load.begin()
        await soon(lambda: set(origin.states().values()) == {"up"})
        if fault == "restarted empty":
            victim.restart()
            await load.more(200)
        else:
            victim.freeze() if fault == "frozen" else victim.kill()
            await soon(lambda: origin.states()[victim.address] != "up", what="it is known to be in trouble")
            await load.more(100)
            victim.thaw() if fault == "frozen" else victim.start()
        await soon(lambda: origin.states()[victim.address] == "up")
        before = calls(victim)
        await soon(lambda: calls(victim) > before, what="the replica takes its share again")
    assert not load.errors()
    assert not load.stale()
    load.check()


async def relieved(node: RedisServer, *, by: RedisServer) -> None:
    """Wait for half a second in which all reads went to the other one; in some, noise may have sent a few elsewhere."""
    async with asyncio.timeout(30):
        while True:
            before, others = calls(node), calls(by)
            await asyncio.sleep(0.5)
            if calls(node) == before and calls(by) > others:
                return


async def kept(proxy: FaultProxy) -> None:
    """Wait for several times the limit of silence with no new connection; a process held up may open one in others."""
    async with asyncio.timeout(30):
        while True:
            before = proxy.accepted
            await asyncio.sleep(1.3)
            if proxy.accepted == before:
                return


def calls(node: RedisServer) -> int:
    return node.commandstats().get("evalsha", 0) if node.alive and not node.frozen else 0
