"""Sentinel names the nodes: who is read follows what it says, and costs a few kept connections."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.errors import OriginUnavailable
from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.servers import RedisServer, SentinelGroup

pytestmark = pytest.mark.xdist_group("sentinel")


@pytest.fixture(scope="module")
def shared(module_stack: contextlib.ExitStack) -> SentinelGroup:
    return module_stack.enter_context(SentinelGroup())


@pytest.fixture
def group(shared: SentinelGroup) -> SentinelGroup:
    """Give the module's group with three members on the board ``s``: cyd 1st, bob 2nd, ann 3rd."""
    for sentinel in shared.sentinels:
        if sentinel.frozen:
            sentinel.thaw()
    shared.reset()
    shared.write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    return shared


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
    async with origin_at(group.settings) as origin:
        await read_bob(origin, 2000)
        assert group.primary.commandstats().get("evalsha", 0) == 0
        assert all(replica.commandstats()["evalsha"] > 200 for replica in group.replicas)
    opened = [connections(server) - count for server, count in zip(servers, before, strict=True)]
    assert all(count <= 4 for count in opened), opened


async def test_nothing_stays_connected_after_the_end(group: SentinelGroup) -> None:
    def named() -> int:
        return sum(b"name=leaderboard-gateway" in node.call("CLIENT", "LIST") for node in group.nodes)

    def listening() -> int:
        return sum(b"cmd=subscribe" in sentinel.call("CLIENT", "LIST") for sentinel in group.sentinels)

    async with origin_at(group.settings) as origin:
        await read_bob(origin, 100)
        await soon(lambda: (named(), listening()) == (3, 3), within_s=2)
    await soon(lambda: (named(), listening()) == (0, 0), within_s=2)


async def test_sentinels_that_hang_or_died_hold_nobody_up(group: SentinelGroup) -> None:
    group.sentinels[0].freeze()
    dead = [*group.settings["sentinels"][:1], "127.0.0.1:1", *group.settings["sentinels"][2:]]
    async with asyncio.timeout(3):
        async with origin_at({**group.settings, "sentinels": dead}) as origin:
            await read_bob(origin, 100)
    group.sentinels[0].thaw()


async def test_a_service_that_no_sentinel_knows_is_found_once_it_is_made_known(group: SentinelGroup) -> None:
    async with origin_at({**group.settings, "service": "other"}) as origin:
        with pytest.raises(OriginUnavailable):
            await origin.member(board("s"), b"bob")
        for sentinel in group.sentinels:
            sentinel.call("SENTINEL", "MONITOR", "other", "127.0.0.1", group.primary.port, 2)
        await soon(lambda: "replica" in origin.roles().values(), within_s=5)
        await soon(lambda: set(origin.states().values()) == {"up"}, within_s=5)
        await read_bob(origin, 100)
    for sentinel in group.sentinels:
        sentinel.call("SENTINEL", "REMOVE", "other")


async def test_after_a_failover_reads_leave_the_promoted_node_and_reach_the_demoted_one(group: SentinelGroup) -> None:
    async with origin_at({**group.settings, "primary_max_reads_per_s": 100_000}) as origin:
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

        async with asyncio.timeout(10):
            while not _replicas_only(await shares()):
                pass
        assert (await shares())[0] == 0
        stopped.set()
        await loading
        assert not failures
        assert origin.roles()[group.primary.address] == "primary"
        assert origin.roles()[demoted.address] == "replica"


def reads_of(node: RedisServer) -> int:
    return node.commandstats().get("evalsha", 0)


def _replicas_only(shares: tuple[int, int]) -> bool:
    on_primary, on_demoted = shares
    return on_primary == 0 and on_demoted > 0
