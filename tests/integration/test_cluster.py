"""A cluster is read through its replicas, also while slots move, and its redirects cost one hop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis.crc import key_slot

from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.patience import PATIENT
from tests.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def shared(module_stack: contextlib.ExitStack) -> RedisCluster:
    return module_stack.enter_context(RedisCluster(node_timeout_ms=30_000))


@pytest.fixture
def cluster(shared: RedisCluster) -> RedisCluster:
    """Give the module's cluster: empty, statistics at zero."""
    shared.reset()
    return shared


@pytest.fixture
async def origin(cluster: RedisCluster) -> AsyncIterator[RealOrigin]:
    async with origin_at({**cluster.settings, **PATIENT}) as running:
        await all_up(running, cluster)
        yield running


async def all_up(origin: RealOrigin, cluster: RedisCluster) -> None:
    """Wait until every node is known and fit to be read."""
    addresses = {node.address for node in cluster.nodes}
    await soon(
        lambda: (states := origin.states()).keys() == addresses and set(states.values()) == {"up"}, what="all are up"
    )


def boards_of_every_shard(cluster: RedisCluster, prefix: str = "lb") -> list[str]:
    """Write three members to one board a shard and return the boards' keys."""
    keys = [next(f"{prefix}:{n}" for n in itertools.count() if key_slot(f"{prefix}:{n}".encode()) in slots)
            for slots in cluster.ranges]  # fmt: skip
    for key in keys:
        cluster.write("ZADD", key, 10, "ann", 20, "bob", 30, "cyd")
    return keys


def calls(nodes: list[RedisServer], command: str = "evalsha") -> int:
    return sum(node.commandstats().get(command, 0) for node in nodes)


def connections(node: RedisServer) -> set[str]:
    """Return the ids of the connections that reads go through."""
    lines = node.call("CLIENT", "LIST").decode().splitlines()
    clients = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return {client["id"] for client in clients if client["name"] == "leaderboard-gateway"}


def replicas(cluster: RedisCluster) -> list[RedisServer]:
    return [node for node in cluster.nodes if node.info()["role"] == "slave"]


def primaries(cluster: RedisCluster) -> list[RedisServer]:
    return [node for node in cluster.nodes if node.info()["role"] == "master"]


def moved(cluster: RedisCluster) -> int:
    return sum(node.errorstats().get("MOVED", 0) for node in cluster.nodes)


async def test_replicas_answer_every_read_also_on_connections_that_were_opened_again(
    cluster: RedisCluster, origin: RealOrigin
) -> None:
    keys = boards_of_every_shard(cluster)

    async def read_all(times: int) -> None:
        for _ in range(times):
            for key in keys:
                target = board(key)
                one, window, around = await asyncio.gather(
                    origin.member(target, b"bob"), origin.window(target, 1, 100), origin.neighbors(target, b"bob", 1, 1)
                )
                assert (rank(one), window.total, len(around.entries)) == (2, 3, 3)

    async def all_by_replicas() -> None:
        """Read when every node is up: there is a replica for each, and no reason to ask anybody else."""
        await all_up(origin, cluster)
        for node in cluster.nodes:
            node.call("CONFIG", "RESETSTAT")
        await read_all(50)
        assert calls(replicas(cluster)) >= 450
        assert calls(primaries(cluster)) == 0
        assert moved(cluster) == 0

    await all_by_replicas()
    killed = [connections(node) for node in cluster.nodes]
    assert all(killed)
    for node in cluster.nodes:
        node.call("CLIENT", "KILL", "TYPE", "normal")
    await soon(lambda: all(not old & connections(node) for node, old in zip(cluster.nodes, killed, strict=True)))
    await soon(lambda: all(map(connections, cluster.nodes)), what="every node is connected again")
    await all_by_replicas()


async def test_a_hash_tag_decides_where_a_key_is_read(cluster: RedisCluster, origin: RealOrigin) -> None:
    for key in ("lb:{clan}:week", "{clan}", "lb:{}x", "a{b}{c}", "{unclosed", "☃{é}"):
        cluster.write("ZADD", key, 10, "ann", 20, "bob")
        assert rank(await origin.member(board(key), b"ann")) == 2
    assert moved(cluster) == 0


async def test_profiles_may_lie_in_another_slot_than_their_board(cluster: RedisCluster, origin: RealOrigin) -> None:
    first, *_, other = boards_of_every_shard(cluster)
    names = other + "-names{" + other + "}"
    cluster.write("HSET", names, "bob", "Bob the Builder")
    assert cluster.owner(names) is not cluster.owner(first)
    window = await origin.window(board(first, profiles=names), 1, 3)
    assert [(entry.member, entry.profile) for entry in window.entries] == [
        (b"cyd", None),
        (b"bob", b"Bob the Builder"),
        (b"ann", None),
    ]
    assert not window.profiles_missing


async def test_lag_is_known_of_every_shard(cluster: RedisCluster) -> None:
    async with origin_at(cluster.settings) as origin:
        await all_up(origin, cluster)
        reports = origin.reads.nodes()
        assert {report.shard for report in reports} == {0, 1, 2}
        assert len(reports) == 6
        await soon(lambda: all(at.lag_s is not None and at.lag_s < 2 for at in origin.reads.nodes()), what="all lags")
        replica = cluster.replica_of(cluster.nodes[0])
        others = states_without(origin, replica)
        replica.freeze()
        await soon(lambda: origin.states()[replica.address] != "up")
        await soon(lambda: set(others().values()) == {"up"}, what="it alone is not up")
        assert origin.states()[replica.address] != "up"
        replica.thaw()
        await soon(lambda: origin.states()[replica.address] == "up")


def states_without(origin: RealOrigin, node: RedisServer) -> Callable[[], dict[str, str]]:
    """Return what tells the states of all nodes but one."""
    return lambda: {address: state for address, state in origin.states().items() if address != node.address}


async def test_a_slot_half_moved_costs_one_hop_a_read(cluster: RedisCluster, origin: RealOrigin) -> None:
    cluster.write("ZADD", "{half}board", 10, "p1", 20, "p2")
    source = cluster.owner("{half}board")
    target = cluster.other_primary(source)
    cluster.begin_migration("{half}board", target)
    cluster.move_keys("{half}board", source, target)
    for node in cluster.nodes:
        node.call("CONFIG", "RESETSTAT")
    exact = board("{half}board", read_from="primary")
    for _ in range(50):
        assert rank(await origin.member(exact, b"p1")) == 2
    assert target.errorstats().get("MOVED", 0) <= 1
    assert source.errorstats().get("ASK", 0) <= 50
    assert calls([source, target]) <= 101
    cluster.end_migration("{half}board", target)
    for _ in range(20):
        assert rank(await origin.member(exact, b"p1")) == 2
    # A map that is read anew may come from a node that has not heard of the move yet: that is one more.
    assert moved(cluster) <= 3 + calls(cluster.nodes, "cluster|slots")


async def test_an_absent_key_is_absent_only_if_the_slots_owner_says_so(
    cluster: RedisCluster, origin: RealOrigin
) -> None:
    assert (await origin.window(board("{gone}ghost"), 1, 10)).total == 0
    cluster.write("ZADD", "{gone}board", 10, "p1", 20, "p2")
    source = cluster.owner("{gone}board")
    target = cluster.other_primary(source)
    cluster.begin_migration("{gone}board", target)
    cluster.move_keys("{gone}board", source, target)
    assert (await origin.window(board("{gone}board"), 1, 10)).total == 2  # its replica says: no such key
    assert rank(await origin.member(board("{gone}board"), b"p1")) == 2
    assert (await origin.window(board("{gone}other"), 1, 10)).total == 0  # absent at the owner, and after its ASK
    cluster.end_migration("{gone}board", target)
    assert (await origin.window(board("{gone}board"), 1, 10)).total == 2


async def test_every_read_is_right_while_a_slot_moves_there_and_back(cluster: RedisCluster, origin: RealOrigin) -> None:
    scores: list[str] = [word for n in range(200) for word in (str(n), f"p{n}")]
    cluster.write("ZADD", "{moving}board", *scores)
    first = cluster.owner("{moving}board")
    moving = True
    wrong: list[object] = []
    count = 0

    async def load() -> None:
        nonlocal count
        while moving:
            one = await origin.member(board("{moving}board"), b"p150")
            window = await origin.window(board("{moving}board"), 1, 100)
            if rank(one) != 50 or window.total != 200 or one.stamp.stale:
                wrong.append((one, window.total))
            count += 2
            await asyncio.sleep(0.001)

    loads = [asyncio.create_task(load()) for _ in range(4)]
    for target in (cluster.other_primary(first), first) * 2:
        before = count
        await asyncio.to_thread(cluster.migrate, "{moving}board", target)
        await asyncio.sleep(0.3)
        await soon(lambda before=before: count > before + 100 or any(load.done() for load in loads))  # type: ignore[misc]
    moving = False
    await asyncio.gather(*loads)
    assert not wrong


async def test_a_flood_of_redirects_is_one_refresh_of_the_map(cluster: RedisCluster, origin: RealOrigin) -> None:
    keys = [f"{{flood}}{n}" for n in range(100)]
    for key in keys:
        cluster.owner("{flood}0").call("ZADD", key, 1, "p1")
    source = cluster.owner("{flood}0")
    target = cluster.other_primary(source)
    await asyncio.to_thread(cluster.migrate, "{flood}0", target)
    # A replica that has not heard of the move yet would say of each key that it is gone, and not where it is.
    await soon(lambda: {owner_port(node, "{flood}0") for node in cluster.nodes} == {target.port}, what="all know")
    before, began = calls(cluster.nodes, "cluster|slots"), time.monotonic()
    answers = await asyncio.gather(*(origin.member(board(key), b"p1") for key in keys))
    assert {rank(answer) for answer in answers} == {1}
    await soon(lambda: calls(cluster.nodes, "cluster|slots") > before, what="the map is read anew")
    await asyncio.sleep(0.6)
    asked = calls(cluster.nodes, "cluster|slots") - before
    turns = (time.monotonic() - began) / 0.25 + 2
    assert asked <= 5 * turns, "three nodes a turn, or the seeds besides; and not a turn for each of the hundred"


def owner_port(node: RedisServer, key: str) -> int:
    """Return the port of whom this node believes to hold the key's slot; 0 for nobody."""
    slot = key_slot(key.encode())
    return next((int(held[2][1]) for held in RedisCluster.slots(node) if held[0] <= slot <= held[1]), 0)


async def test_reading_a_cluster_keeps_a_few_connections(cluster: RedisCluster) -> None:
    keys = boards_of_every_shard(cluster)
    before = [int(node.info("stats")["total_connections_received"]) for node in cluster.nodes]
    async with origin_at({**cluster.settings, **PATIENT}) as origin:
        for _ in range(20):
            await asyncio.gather(*(origin.member(board(key), b"bob") for key in keys for _ in range(33)))
    opened = [
        int(node.info("stats")["total_connections_received"]) - count
        for node, count in zip(cluster.nodes, before, strict=True)
    ]
    assert all(count <= 4 for count in opened), opened
