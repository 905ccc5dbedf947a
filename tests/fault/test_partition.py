"""The gateway is cut off together with the old primary, while the other half elects a new one and goes on.

Real Sentinels, real nodes, a gate before each: one Sentinel, the old primary and a replica are in the gateway's half.
Who reads ``bob`` as 3rd has read the old half, as 1st the new one: both primaries are written to meanwhile. In the end
the gateway reaches both halves while they do not reach each other yet, and has to know whom to believe.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from tests.fault.partition import FAR, HERE, NEAR, Gate, Network
from tests.fault.watch import QUICK, Load
from tests.origins import origin_at, soon
from tests.servers import RedisServer, SentinelServer, eventually

pytestmark = pytest.mark.xdist_group("failover")

SERVICE = "leaderboards"
OLD_HALF, NEW_HALF = 3, 1
"""The rank of ``bob`` that only a primary in that half has given."""
MAX_LAG_S = QUICK["max_lag_ms"] / 1000
SLACK_S = 0.5
FOLLOWS_S = 15.0
"""How soon the Sentinels of the other half are followed once they can be heard, on a busy machine: they are asked every
second."""


class GatedSentinel(SentinelServer):
    """A Sentinel that knows everybody, and is known, by the gates; it connects from its site's address."""

    def __init__(self, own: Gate, primary: Gate, server: RedisServer) -> None:
        super().__init__(server, down_after_ms=3000)
        self._own, self._primary = own, primary
        own.target = self.port

    def _config(self) -> list[str]:
        named, gated = (f"monitor {SERVICE} 127.0.0.1 {port} " for port in (self.primary.port, self._primary.port))
        lines = [line.replace(named, gated) for line in super()._config()]
        announced = ["sentinel announce-ip 127.0.0.1", f"sentinel announce-port {self._own.port}"]
        return [*lines, *announced, f"bind-source-addr {self._own.site}"]


class World(NamedTuple):
    """``old``, ``beside`` (its replica) and the first Sentinel are in the gateway's half; ``new`` and two are not."""

    network: Network
    gates: dict[RedisServer, Gate]
    old: RedisServer
    beside: RedisServer
    new: RedisServer
    sentinels: list[GatedSentinel]


def node(gate: Gate, primary: Gate | None = None) -> RedisServer:
    follows = [] if primary is None else [f"replicaof 127.0.0.1 {primary.port}"]
    announced = ["replica-announce-ip 127.0.0.1", f"replica-announce-port {gate.port}"]
    server = RedisServer(config=[*announced, f"bind-source-addr {gate.site}", *follows])
    gate.target = server.port
    return server


def start(world: World) -> None:
    for server in (world.old, world.beside, world.new):
        server.start(wait=False)
    for server in (world.old, world.beside, world.new):
        server.wait_until(server.answers)
    world.old.call("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    for server in (world.beside, world.new):
        eventually(lambda at=server: at.call("ZCARD", "s") == 3, what="the replicas have the board")  # type: ignore[misc]
    for sentinel in world.sentinels:
        sentinel.start(wait=False)
    for sentinel in world.sentinels:
        sentinel.wait_until(sentinel.answers)
        sentinel.hurry()
    for sentinel in world.sentinels:
        eventually(lambda at=sentinel: at.knows_all(2, 3), within_s=30, what="everybody is known")  # type: ignore[misc]


@pytest.fixture
async def world(stack: contextlib.ExitStack) -> AsyncIterator[World]:
    network = Network()
    sites = (NEAR, NEAR, FAR, NEAR, FAR, FAR)
    async with contextlib.AsyncExitStack() as running:
        gates = [await running.enter_async_context(Gate(network, site)) for site in sites]
        old, beside, new = node(gates[0]), node(gates[1], gates[0]), node(gates[2], gates[0])
        sentinels = [GatedSentinel(gate, gates[0], old) for gate in gates[3:]]
        servers = (old, beside, new, *sentinels)
        for server in servers:
            stack.callback(server.close)
        made = World(network, dict(zip(servers, gates, strict=True)), old, beside, new, sentinels)
        await asyncio.to_thread(start, made)
        yield made


async def diverge(world: World) -> None:
    """Let the other half elect its primary, and both write."""
    far = world.sentinels[1:]

    def promoted() -> bool:
        named = {sentinel.settled_port() for sentinel in far}
        return named == {world.gates[world.new].port} and world.new.info()["role"] == "master"

    await asyncio.to_thread(lambda: eventually(promoted, within_s=40, what="the other half has a primary"))
    assert world.sentinels[0].settled_port() == world.gates[world.old].port, "this half has not heard of it"
    world.new.call("ZADD", "s", 40, "bob")
    world.old.call("ZADD", "s", 5, "bob")
    await soon(lambda: world.beside.call("ZREVRANK", "s", "bob") == OLD_HALF - 1, what="the old half goes on, too")


@pytest.mark.parametrize("old_primary", ["answers on", "falls silent"])
async def test_a_gateway_cut_off_with_the_old_primary_follows_the_new_one_once_it_hears_of_it_and_never_goes_back(
    world: World, old_primary: str
) -> None:
    settings = {"sentinels": [world.gates[sentinel].address for sentinel in world.sentinels], "service": SERVICE}
    async with origin_at({**settings, **QUICK, "primary_max_reads_per_s": 100_000}) as origin, Load(origin) as load:
        await load.begin()
        world.network.part(NEAR, FAR)
        world.network.part(HERE, FAR)
        await diverge(world)
        diverged, frozen = time.monotonic(), float("inf")
        await asyncio.sleep(MAX_LAG_S + 0.5)
        if old_primary == "falls silent":
            frozen = await falls_silent(world, load)
        world.network.join(HERE, FAR)
        new = world.gates[world.new].address
        await soon(lambda: origin.roles().get(new) == "primary", within_s=FOLLOWS_S, what="the new primary is followed")
        followed = time.monotonic()
        if old_primary == "falls silent":
            world.old.thaw()  # it has slept through all of it, and says that it is a primary until it is told
        # Those of the old half go on without the others: its Sentinel, its primary, the replica in step with that.
        await asyncio.sleep(MAX_LAG_S + SLACK_S + 1.0)
        assert world.sentinels[0].settled_port() == world.gates[world.old].port
        assert origin.roles()[new] == "primary"
        world.network.join(NEAR, FAR)
        whole = {world.gates[server].address: "up" for server in (world.old, world.beside, world.new)}
        await soon(lambda: origin.states() == whole, what="the others are replicas of it, and in step")
        await load.fresh_again(within_s=30)
    assert not load.errors()
    assert {sample.rank for sample in load.samples if sample.at < diverged} <= {2, OLD_HALF}
    assert {sample.rank for sample in load.samples if sample.began > diverged + MAX_LAG_S} == {OLD_HALF, NEW_HALF}
    # A primary that answers, and a replica in step with it: in its half the gateway has no reason for a mark.
    assert not [one for one in load.stale() if one.at < min(frozen, followed)]
    marked_from = min(frozen + MAX_LAG_S, followed + MAX_LAG_S + SLACK_S)
    after = [sample for sample in load.samples if sample.began > marked_from]
    assert {sample.rank for sample in after if not sample.stale} == {NEW_HALF}, "the old half is marked, or not read"


async def falls_silent(world: World, load: Load) -> float:
    """Freeze the old primary, so that soon nothing is known to be in step any more; return when."""
    world.old.freeze()
    frozen, frozen_wall = time.monotonic(), time.time()
    await soon(lambda: bool(load.stale(frozen)), what="the mark")
    # Marks may come and go until the last sample of the primary is too old: a look at the replica may be late.
    await asyncio.sleep(max(0.0, frozen + MAX_LAG_S - time.monotonic()))
    marked = await load.more(50)
    assert {(sample.rank, sample.stale) for sample in marked} == {(OLD_HALF, True)}
    assert all(sample.as_of <= frozen_wall + 0.05 for sample in marked), "as_of is the last instant known in step"
    return frozen
