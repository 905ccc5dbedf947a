"""Reads survive a failover, a partition and a full outage; what they say is right, and marked where it may be old."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gateway.errors import GatewayError
from tests.fault.proxy import FaultProxy
from tests.fault.sentinels import FakeSentinel
from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.servers import RedisCluster, RedisGroup, RedisServer, SentinelGroup, free_port

pytestmark = pytest.mark.xdist_group("failover")

QUICK = {"read_timeout_ms": 250, "request_budget_ms": 1000, "max_lag_ms": 1500}
"""Patient in what a busy machine may delay, and quick to notice what a fault has changed."""


@dataclass(frozen=True)
class Sample:
    """One read under load: when it ended, how long it took, and what came of it."""

    at: float
    took_s: float
    rank: int | None = None
    stale: bool = False
    as_of: float = 0.0
    error: GatewayError | None = None


class Load:
    """Two readers of one member's rank, every 10 ms each, in the background of a test."""

    def __init__(self, origin: RealOrigin, key: str = "s") -> None:
        self.origin, self.key, self.samples = origin, key, list[Sample]()

    async def _read(self) -> None:
        while True:
            began = time.monotonic()
            try:
                answer = await self.origin.member(board(self.key), b"bob")
            except GatewayError as error:
                self.samples.append(Sample(time.monotonic(), time.monotonic() - began, error=error))
            else:
                stamp, now = answer.stamp, time.monotonic()
                self.samples.append(Sample(now, now - began, rank(answer), stamp.stale, stamp.as_of))
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._read()) for _ in range(2)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def since(self, at: float) -> list[Sample]:
        return [sample for sample in self.samples if sample.at >= at]

    async def fresh_again(self, *, within_s: float) -> float:
        """Wait until half a second has passed with nothing but answers without a mark; return how long it took."""

        def fresh() -> bool:
            recent = self.since(time.monotonic() - 0.5)
            return len(recent) > 10 and not any(sample.stale or sample.error for sample in recent)

        return await soon(fresh, within_s=within_s, what="fresh answers again")

    def check(self) -> None:
        """Every answer named the right rank, and none took much longer than the budget."""
        assert {sample.rank for sample in self.samples if not sample.error} == {2}
        assert max(sample.took_s for sample in self.samples) < 1 + 1

    def errors(self, since: float = 0.0) -> list[GatewayError]:
        return [sample.error for sample in self.since(since) if sample.error]

    def stale(self, since: float = 0.0) -> list[Sample]:
        return [sample for sample in self.since(since) if sample.stale]


def fill(group: RedisGroup | RedisCluster, key: str = "s") -> None:
    group.write("ZADD", key, 10, "ann", 20, "bob", 30, "cyd")


@pytest.fixture
async def group(redis_group: RedisGroup) -> AsyncIterator[RedisGroup]:
    fill(redis_group)
    yield redis_group
    redis_group.reset()


async def test_ranks_are_answered_through_a_sentinel_failover_and_marked_while_no_primary_answers(
    stack: contextlib.ExitStack,
) -> None:
    group = stack.enter_context(SentinelGroup(1))  # the one replica is promoted: no other can stand in for it meanwhile
    fill(group)
    async with origin_at({**group.settings, **QUICK}) as origin, Load(origin) as load:
        await load.fresh_again(within_s=5)
        killed_at, killed_wall = time.monotonic(), time.time()
        group.primary.kill()
        await asyncio.to_thread(group.wait_failed_over)
        await load.fresh_again(within_s=10)
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
    cluster = stack.enter_context(RedisCluster(config=[f"cluster-allow-reads-when-down {when_down}"]))
    fill(cluster)
    async with origin_at({**cluster.settings, **QUICK}) as origin, Load(origin) as load:
        await load.fresh_again(within_s=5)
        killed_at = time.monotonic()
        old = cluster.owner("s")
        promoted = cluster.replica_of(old)
        old.kill()
        await soon(lambda: origin.roles().get(promoted.address) == "primary", within_s=10)
        await load.fresh_again(within_s=5)
        assert load.stale(killed_at)
        old.start()
        await soon(lambda: origin.states().get(old.address) == "up", within_s=10, what="the old primary is a replica")
        await soon(lambda: calls(old) > 0, within_s=5, what="it takes its share")
        before = calls(promoted)
        await asyncio.sleep(0.5)
        assert calls(promoted) == before
    refused = [sample for sample in load.samples if sample.error]
    if when_down == "yes":
        assert not refused, refused[:3]
    else:
        # A cluster without one of its shards refuses reads on every node until it has decided (CLUSTERDOWN).
        assert not refused or refused[-1].at - refused[0].at < 3
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
            assert rank(await origin.member(board("s"), b"bob")) == 1
            for sentinel in (second, third):  # the other side of the partition elects a new primary …
                await sentinel.stop()
                sentinel.sees(new.primary, new.replicas, epoch=2)
            await asyncio.sleep(1.5)
            assert rank(await origin.member(board("s"), b"bob")) == 1
            for sentinel in (second, third):  # … and comes back
                await sentinel.start()
            await soon(lambda: set(origin.states()) == {node.address for node in nodes}, within_s=5)
            await soon(lambda: set(origin.states().values()) == {"up"}, within_s=5)
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
        assert origin.roles() == {one.address: "primary"}
        sentinel.mute = True
        await asyncio.sleep(0.1)
        sentinel.publish_switch(one, other)
        await soon(lambda: origin.roles() == {other.address: "primary"}, within_s=0.4)


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
        await asyncio.sleep(1.3)
        assert proxy.accepted == 2, "one to ask, one to listen: quiet for several times the limit, and alive"
        proxy.drop()
        await soon(lambda: proxy.accepted > 2, within_s=3)
        await proxy.heal()
        proxy.reset()
        await soon(lambda: sentinel.listeners == 1, within_s=3)
        sentinel.mute = True
        await asyncio.sleep(0.1)
        sentinel.publish("somebody-else 127.0.0.1 1 127.0.0.1 2")
        sentinel.publish_switch(one, other)
        await soon(lambda: origin.roles() == {other.address: "primary"}, within_s=1)


async def stopped_for(cluster: RedisCluster, load: Load, seconds: float) -> None:
    """Stop every node, keeping its data, and check that reads fail cleanly meanwhile."""
    for node in cluster.nodes:
        node.call("SAVE")
    for node in cluster.nodes:
        node.kill()
    await asyncio.sleep(seconds)
    assert load.since(time.monotonic() - 0.3)
    assert all(sample.error for sample in load.since(time.monotonic() - 0.3))


async def test_a_cluster_that_went_away_is_found_at_its_old_addresses_and_at_new_ones_behind_the_same_seed(
    stack: contextlib.ExitStack,
) -> None:
    cluster = stack.enter_context(RedisCluster())
    fill(cluster)
    async with contextlib.AsyncExitStack() as running:
        seed = await running.enter_async_context(FaultProxy(cluster.nodes[0].port))
        origin = await running.enter_async_context(origin_at({"cluster": [seed.address], **QUICK}))
        async with Load(origin) as load:
            await load.fresh_again(within_s=5)
            await stopped_for(cluster, load, 1.5)
            for node in cluster.nodes:
                node.start(wait=False)
            await asyncio.to_thread(cluster.wait_ok)
            assert await load.fresh_again(within_s=5) < 5

            await stopped_for(cluster, load, 1.5)
            for node in cluster.nodes:
                node.port, node.bus_port = free_port(), free_port()
                node.start(wait=False)
            await asyncio.to_thread(cluster.meet_again)
            seed.target = cluster.nodes[0].port
            assert await load.fresh_again(within_s=5) < 5
            addresses = {node.address for node in cluster.nodes}
            await soon(lambda: set(origin.states()) == addresses, within_s=8, what="all new addresses, and no old one")
    load.check()


@pytest.mark.parametrize("fault", ["frozen", "killed", "restarted empty"])
async def test_a_replica_in_trouble_costs_no_read_and_no_wrong_answer(group: RedisGroup, fault: str) -> None:
    victim = group.replicas[0]
    async with origin_at({**group.settings, **QUICK}) as origin, Load(origin) as load:
        await load.fresh_again(within_s=5)
        if fault == "frozen":
            victim.freeze()
        elif fault == "killed":
            victim.kill()
        else:
            victim.restart()
        await asyncio.sleep(1.5)
        before = calls(victim)
        if fault == "frozen":
            victim.thaw()
        elif fault == "killed":
            victim.start()
        await soon(lambda: origin.states()[victim.address] == "up", within_s=5)
        await soon(lambda: calls(victim) > before, within_s=5, what="the replica takes its share again")
    assert not load.errors()
    assert not load.stale()
    load.check()


def calls(node: RedisServer) -> int:
    return node.commandstats().get("evalsha", 0) if node.alive and not node.frozen else 0
