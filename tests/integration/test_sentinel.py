"""Sentinel names the nodes: who is read follows what it says, and costs a few kept connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.errors import OriginUnavailable
from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.servers import RedisServer, SentinelGroup

pytestmark = pytest.mark.xdist_group("sentinel")

PATIENT = {"read_timeout_ms": 15_000, "request_budget_ms": 30_000, "max_lag_ms": 60_000}
"""For ``[redis]``: a machine that stands still for a moment must not look like a node that failed."""


@pytest.fixture(scope="module")
def shared(module_stack: contextlib.ExitStack) -> SentinelGroup:
    return module_stack.enter_context(SentinelGroup(down_after_ms=60_000))


@pytest.fixture
def group(shared: SentinelGroup) -> SentinelGroup:
    """Give the module's group with three members on the board ``s``: cyd 1st, bob 2nd, ann 3rd."""
    for sentinel in shared.sentinels:
        if sentinel.frozen:
            sentinel.thaw()
    shared.reset()
    shared.write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    return shared


@contextlib.asynccontextmanager
async def patient_origin(group: SentinelGroup, **settings: Any) -> AsyncIterator[RealOrigin]:
    """Give an origin with time to spare, once every node is up: until then the primary stands in for others."""
    async with origin_at({**group.settings, **PATIENT, **settings}) as origin:
        await soon(lambda: list(origin.states().values()) == ["up"] * len(group.nodes), within_s=15)
        yield origin


def connections(node: RedisServer) -> int:
    return int(node.info("stats")["total_connections_received"])


async def read_bob(origin: RealOrigin, times: int, at_once: int = 100) -> None:
    for _ in range(0, times, at_once):
        answers = await asyncio.gather(*(origin.member(board("s"), b"bob") for _ in range(at_once)))
        assert {rank(answer) for answer in answers} == {2}
        assert not any(answer.stamp.stale for answer in answers)


async def test_two_thousand_reads_open_no_connection_of_their_own(group: SentinelGroup) -> None:
    servers = [*group.nodes, *group.sentinels]
    before = [connections(server) for server in servers]
    async with patient_origin(group) as origin, asyncio.timeout(90):
        await read_bob(origin, 2000)
        while min(map(reads_of, group.replicas)) <= 200:  # one that stood still for a moment has to win its share back
            await read_bob(origin, 2000)
        assert reads_of(group.primary) == 0
        assert all(node.call("CLIENT", "LIST").count(b"name=leaderboard-gateway") <= 3 for node in group.nodes)
    opened = [connections(server) - count for server, count in zip(servers, before, strict=True)]
    # The Sentinels open some of their own: to a node, or to each other, where an answer was late.
    assert all(count < 100 for count in opened), opened


async def test_nothing_stays_connected_after_the_end(group: SentinelGroup) -> None:
    def named() -> int:
        return sum(b"name=leaderboard-gateway" in node.call("CLIENT", "LIST") for node in group.nodes)

    def listening() -> int:
        return sum(b"cmd=subscribe" in sentinel.call("CLIENT", "LIST") for sentinel in group.sentinels)

    async with patient_origin(group) as origin:
        await read_bob(origin, 100)
        await soon(lambda: (named(), listening()) == (3, 3), within_s=30)
    await soon(lambda: (named(), listening()) == (0, 0), within_s=30)


async def test_sentinels_that_hang_or_died_hold_nobody_up(group: SentinelGroup) -> None:
    group.sentinels[0].freeze()
    dead = [*group.settings["sentinels"][:1], "127.0.0.1:1", *group.settings["sentinels"][2:]]
    async with asyncio.timeout(15):
        async with patient_origin(group, sentinels=dead) as origin:
            await read_bob(origin, 100)
    group.sentinels[0].thaw()


async def test_a_service_that_no_sentinel_knows_is_found_once_it_is_made_known(group: SentinelGroup) -> None:
    async with origin_at({**group.settings, **PATIENT, "service": "other"}) as origin:
        with pytest.raises(OriginUnavailable):
            await origin.member(board("s"), b"bob")
        for sentinel in group.sentinels:
            sentinel.call("SENTINEL", "MONITOR", "other", "127.0.0.1", group.primary.port, 2)
        await soon(lambda: "replica" in origin.roles().values(), within_s=30)
        await soon(lambda: set(origin.states().values()) == {"up"}, within_s=30)
        await read_bob(origin, 100)
    for sentinel in group.sentinels:
        sentinel.call("SENTINEL", "REMOVE", "other")


async def test_after_a_failover_reads_leave_the_promoted_node_and_reach_the_demoted_one(group: SentinelGroup) -> None:
    async with patient_origin(group, primary_max_reads_per_s=100_000) as origin:
        stopped = asyncio.Event()
        failures: list[Exception] = []

        async def load() -> None:
            while not stopped.is_set():
                try:
                    assert rank(await origin.member(board("s"), b"bob")) == 2
                except OriginUnavailable as error:
                    failures.append(error)
                await asyncio.sleep(0.002)

        loading = asyncio.create_task(load())
        demoted = group.primary
        await asyncio.to_thread(group.failover)

        async def shares() -> tuple[int, int]:
            """Return how many reads the primary and the demoted node got within half a second."""
            primary = next(node for node in group.nodes if node.info()["role"] == "master")
            before = reads_of(primary), reads_of(demoted)
            await asyncio.sleep(0.5)
            return reads_of(primary) - before[0], reads_of(demoted) - before[1]

        async with asyncio.timeout(60):
            while not _replicas_only(await shares()):
                pass
        assert (await shares())[0] == 0
        stopped.set()
        await loading
        assert len(failures) <= 1, "each node hangs up once when its role changes, and a read may meet two of these"
        assert origin.roles()[group.primary.address] == "primary"
        assert origin.roles()[demoted.address] == "replica"


def reads_of(node: RedisServer) -> int:
    return node.commandstats().get("evalsha", 0)


def _replicas_only(shares: tuple[int, int]) -> bool:
    on_primary, on_demoted = shares
    return on_primary == 0 and on_demoted > 0
