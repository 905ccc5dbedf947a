"""The shared tier on a real Redis: one load for many instances, never older than its TTL, no loss when it is gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest

from gateway.clock import SystemClock
from gateway.counters import Counters
from gateway.encode import Content, Snapshot
from gateway.errors import OriginUnavailable
from gateway.model import Board, Entry, SnapshotKey, Stamp, Target, Window
from gateway.sharedtier import SharedTier, SharedTierLoader
from tests.origins import soon
from tests.servers import Gateway, RedisServer, eventually

pytestmark = pytest.mark.xdist_group("lastknown")

ACCOUNT = (
    "user tier on >secret resetchannels ~lbgw:* -@all +get +pttl +set +psetex +del +eval +hello +auth +select +client"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(acl=[ACCOUNT]) as redis:
        yield redis


@pytest.fixture(autouse=True)
def empty(server: RedisServer) -> None:
    server.call("FLUSHALL")


LIFE_S = 60.0
"""Longer than the machine ever stands still: what is put into the tier is there until the test ends."""


class Origin:
    """A loader that counts, takes its time and fails when told to."""

    def __init__(self) -> None:
        self.loads = 0
        self.takes_s = 0.0
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.stale = self.short_lived = False
        self.age_s = 0.0

    async def load(self, target: Target, key: SnapshotKey) -> Snapshot:
        self.loads += 1
        number = self.loads
        began = time.monotonic() - self.age_s
        await asyncio.sleep(self.takes_s)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        stamp = Stamp(began, time.time())
        content = Content.of(target, key.first, Window(stamp, 1, [Entry(1, b"ann", float(number))]))
        return Snapshot(key, content, began=began, as_of=stamp.as_of, stale=self.stale, short_lived=self.short_lived)


class SkewedClock(SystemClock):
    """This machine's clock, with wall time an hour or so off."""

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s

    def wall(self) -> float:
        return time.time() + self._skew_s


class Instances:
    """Gateway instances that share one tier and one origin."""

    def __init__(self, url: str, origin: Origin) -> None:
        self.url = url
        self.origin = origin
        self.tiers: list[SharedTier] = []
        self.loaders: list[SharedTierLoader] = []
        self.counters = Counters()
        self.random = Random(7)

    def add(
        self,
        *,
        ttl_s: float = LIFE_S,
        timeout_s: float = 20.0,
        budget_s: float = 60.0,
        clock: SystemClock | None = None,
    ) -> SharedTierLoader:
        tier = SharedTier(
            self.url,
            prefix="lbgw:",
            ttl_s=ttl_s,
            timeout_s=timeout_s,
            clock=clock or SystemClock(),
            counters=self.counters,
            random=self.random.random,
        )
        loader = SharedTierLoader(self.origin, tier, clock=clock or SystemClock(), budget_s=budget_s)
        self.tiers.append(tier)
        self.loaders.append(loader)
        return loader

    def outcomes(self) -> dict[str, int]:
        cells = self.counters.counters["gateway_shared_tier_loads_total"].cells
        return {outcome: cell[0] for (outcome,), cell in cells.items()}

    async def settle(self) -> None:
        """Wait for what is put into the tier behind the answers."""
        for loader in self.loaders:
            await loader.settle()

    async def stop(self) -> None:
        for loader in self.loaders:
            await loader.stop()


@pytest.fixture
async def instances(server: RedisServer) -> AsyncIterator[Instances]:
    several = Instances(f"redis://tier:secret@{server.address}/0", Origin())
    yield several
    await several.stop()


def target_of(board: Board | None = None) -> Target:
    board = board or Board(name="race", key="lb:race", ttl_s=LIFE_S)
    return Target(board, board.name, board.key.encode())


RACE = target_of()
TOP = SnapshotKey("race", None, 1, 100)


def number_of(snapshot: Snapshot) -> bytes:
    return snapshot.content.rows.partition(b'"score":')[2]


async def test_many_instances_pay_one_origin_read_and_leave_nothing_behind(
    server: RedisServer, instances: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    instances.origin.takes_s = 0.05
    for _ in range(8):
        instances.add()
    snapshots = await asyncio.gather(*(loader.load(RACE, TOP) for loader in instances.loaders))
    assert instances.origin.loads == 1
    assert len({snapshot.content.rendering(1, 100, stale=False).form("identity") for snapshot in snapshots}) == 1
    outcomes = instances.outcomes()
    assert outcomes.pop("miss") == 1
    assert sum(outcomes.values()) == 7
    assert set(outcomes) <= {"waited", "hit"}, "whoever is late finds what was loaded"
    hits = outcomes.get("hit", 0)
    await instances.settle()
    assert (await instances.add().load(RACE, TOP)).content.total == 1
    assert instances.outcomes()["hit"] == hits + 1
    (entry,) = server.call("KEYS", "*")
    assert entry.startswith(b"lbgw:race::1-100:")
    assert 0 < server.call("PTTL", entry) <= LIFE_S * 1000
    await instances.stop()
    await soon(lambda: b"user=tier" not in server.call("CLIENT", "LIST"), what="every connection is closed")
    assert caplog.records == []


async def test_an_entry_is_never_older_than_its_ttl_whatever_the_wall_clocks_say(
    server: RedisServer, instances: Instances
) -> None:
    instances.origin.age_s = 40.0  # read from Redis that long before it came back
    first = await instances.add().load(RACE, TOP)
    await instances.settle()
    (entry,) = server.call("KEYS", "*")
    assert 0 < server.call("PTTL", entry) <= (LIFE_S - 40) * 1000, "most of its life was over when it came there"
    for skew_s in (-3600.0, 3600.0):
        shared = await instances.add(clock=SkewedClock(skew_s)).load(RACE, TOP)
        assert shared.as_of == first.as_of
        assert abs(shared.began - first.began) < 10, "but for what the tier's answers took"


async def test_c14_a_lease_outlasts_every_load(server: RedisServer, instances: Instances) -> None:
    """What is asked of the tier is looked at: a lease that ends early shows only where a load is slow just then."""
    budget_s, timeout_s = 120.0, 60.0
    instances.origin.gate = asyncio.Event()
    holds = asyncio.create_task(instances.add(budget_s=budget_s, timeout_s=timeout_s).load(RACE, TOP))
    await leased(server)
    (lease,) = server.call("KEYS", "*:lease")
    left_s = server.call("PTTL", lease) / 1000
    instances.origin.gate.set()
    await holds
    await instances.settle()
    assert budget_s + timeout_s < left_s <= budget_s + 4 * timeout_s, "the load, and giving it back"
    assert server.call("EXISTS", lease) == 0


async def test_a_load_slower_than_any_pause_is_still_one_load(instances: Instances) -> None:
    instances.origin.takes_s = 1.0
    for _ in range(6):
        instances.add()
    await asyncio.gather(*(loader.load(RACE, TOP) for loader in instances.loaders))
    assert instances.origin.loads == 1


async def test_waiting_for_another_instance_is_bounded_and_ends_in_a_load_of_ones_own(
    server: RedisServer, instances: Instances
) -> None:
    """The holder of the lease was killed: its lease outlives it."""
    loader = instances.add(budget_s=0.25)
    name = instances.tiers[0].name_of(RACE, TOP, LIFE_S)
    server.call("SET", f"{name}:lease", "somebody")
    began = time.monotonic()
    await loader.load(RACE, TOP)
    assert time.monotonic() - began > 0.14
    assert instances.outcomes() == {"miss": 1}, "that it ends at all is the bound: this lease never does"
    await instances.settle()
    assert server.call("GET", f"{name}:lease") == b"somebody", "a lease is only given back by who took it"
    assert server.call("EXISTS", name) == 1, "what was loaded is shared all the same"


async def leased(server: RedisServer) -> None:
    """Wait until some instance holds a lease."""
    while not server.call("KEYS", "*:lease"):
        await asyncio.sleep(0.01)


async def test_a_load_that_fails_gives_the_lease_back_and_the_next_instance_tries(
    server: RedisServer, instances: Instances
) -> None:
    instances.origin.gate, instances.origin.error = asyncio.Event(), OriginUnavailable()
    first = asyncio.create_task(instances.add(budget_s=60).load(RACE, TOP))
    await leased(server)
    second = asyncio.create_task(instances.add().load(RACE, TOP))
    await asyncio.sleep(0.1)
    assert instances.origin.loads == 1
    instances.origin.gate.set()
    with pytest.raises(OriginUnavailable):
        await first
    instances.origin.error = None
    async with asyncio.timeout(20):  # the lease alone would last longer
        assert number_of(await second) == b"2}"


async def test_a_cancelled_load_gives_the_lease_back(server: RedisServer, instances: Instances) -> None:
    instances.origin.gate = asyncio.Event()
    task = asyncio.create_task(instances.add().load(RACE, TOP))
    await leased(server)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await instances.settle()
    assert server.call("KEYS", "*") == []


async def test_a_load_that_is_cancelled_together_with_the_tiers_reply_ends_and_gives_the_lease_back(
    server: RedisServer, instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11's ``wait_for`` returns the result, and the cancellation is lost."""
    instances.origin.gate = asyncio.Event()
    loader = instances.add()
    cache = instances.tiers[0]._cache
    ask = cache.raw

    async def cancelled_with_the_reply(*parts: object) -> object:
        reply = asyncio.get_running_loop().create_future()

        def land() -> None:
            reply.set_result(found)
            task.cancel()

        found = await ask(*parts)
        asyncio.get_running_loop().call_soon(land)
        return await asyncio.wait_for(reply, 60)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "raw", cancelled_with_the_reply)
        task = asyncio.create_task(loader.load(RACE, TOP))
        await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    assert instances.origin.loads == 0
    await instances.settle()
    assert server.call("KEYS", "*") == []


@pytest.mark.parametrize("what", ["stale", "short_lived"])
async def test_what_is_not_wholly_good_is_not_shared(server: RedisServer, instances: Instances, what: str) -> None:
    setattr(instances.origin, what, True)
    await instances.add().load(RACE, TOP)
    await instances.settle()
    assert server.call("KEYS", "*") == []


async def test_what_is_too_old_to_live_on_is_not_shared(server: RedisServer, instances: Instances) -> None:
    instances.origin.age_s = LIFE_S
    await instances.add().load(RACE, TOP)
    await instances.settle()
    assert server.call("KEYS", "*") == []


async def test_a_board_that_stores_nothing_never_touches_the_tier(server: RedisServer, instances: Instances) -> None:
    target = target_of(Board(name="race", key="lb:race", ttl_s=0.0))
    before = server.commandstats()
    for _ in range(3):
        await instances.add().load(target, TOP)
    await instances.add(ttl_s=0.0).load(RACE, TOP)
    assert instances.origin.loads == 4
    assert instances.outcomes() == {"skipped": 4}
    assert server.commandstats().get("eval", 0) == before.get("eval", 0)


async def test_instances_configured_otherwise_do_not_share(instances: Instances) -> None:
    await instances.add().load(RACE, TOP)
    await instances.settle()
    for board in (
        Board(name="race", key="lb:race", ttl_s=LIFE_S, order="asc"),
        Board(name="race", key="lb:race", ttl_s=LIFE_S, ties="competition"),
        Board(name="race", key="lb:other", ttl_s=LIFE_S),
        Board(name="race", key="lb:race", ttl_s=LIFE_S / 2),
    ):
        await instances.add().load(target_of(board), TOP)
    await instances.add().load(RACE, SnapshotKey("race", None, 101, 200))
    assert instances.origin.loads == 6


async def test_an_entry_of_another_version_is_replaced_and_a_foreign_one_is_stepped_over(
    server: RedisServer, instances: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    loader = instances.add()
    name = instances.tiers[0].name_of(RACE, TOP, LIFE_S)
    server.call("SET", name, b"S9 what is this", "PX", "60000")
    assert number_of(await loader.load(RACE, TOP)) == b"1}"
    await instances.settle()
    assert number_of(await instances.add().load(RACE, TOP)) == b"1}"
    server.call("DEL", name)
    server.call("RPUSH", name, "a list")
    assert number_of(await instances.add().load(RACE, TOP)) == b"2}"
    assert caplog.records == [], "one entry that cannot be read is no outage"


async def rested(instances: Instances) -> None:
    """Wait until the first instance would ask the tier again."""
    while instances.tiers[0].away:
        await asyncio.sleep(0.02)


async def until_shared(server: RedisServer, instances: Instances) -> None:
    """Load until what was loaded is in the tier and the tier answers in time, as a busy machine's may not."""
    while not server.call("KEYS", "*:60000") or instances.tiers[0]._failures:
        await rested(instances)
        await instances.loaders[0].load(RACE, TOP)
        await instances.settle()


async def test_a_tier_that_stops_freezes_and_comes_back_costs_no_load_more_than_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RedisServer() as server:
        instances = Instances(server.url, Origin())
        loader = instances.add(timeout_s=0.2, budget_s=0.5)
        async with asyncio.timeout(60):
            await until_shared(server, instances)
        caplog.clear()
        server.freeze()
        loads, failed, began = instances.origin.loads, instances.outcomes().get("failed", 0), time.monotonic()
        for _ in range(50):
            await loader.load(RACE, TOP)
        rests = (time.monotonic() - began) / 0.5
        assert instances.origin.loads == loads + 50
        failed = instances.outcomes()["failed"] - failed
        assert 3 <= failed <= 3 + rests, "three loads pay for it, then one after each rest"
        server.thaw()
        server.kill()
        await rested(instances)
        for _ in range(20):
            await loader.load(RACE, TOP)
        assert instances.origin.loads == loads + 70
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        server.start()
        async with asyncio.timeout(60):
            await until_shared(server, instances)
        await soon(lambda: server.call("KEYS", "*:lease") == [], what="the lease is given back, or over")
        assert len(server.call("KEYS", "*")) == 1
        assert caplog.records[-1].getMessage() == "shared tier works again"
        assert len(caplog.records) == 2
        await instances.stop()


async def test_a_tier_that_cannot_be_reached_or_refuses_the_account_is_as_if_it_were_off(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for url in ("redis://127.0.0.1:1/0", f"redis://tier:wrong@{server.address}/0", f"redis://nobody@{server.address}"):
        caplog.clear()
        instances = Instances(url, Origin())
        loader = instances.add(timeout_s=0.2)
        for _ in range(5):
            await loader.load(RACE, TOP)
        assert instances.origin.loads == 5
        assert instances.outcomes()["failed"] >= 3
        assert len(caplog.records) == 1
        assert "secret" not in caplog.text
        assert "wrong" not in caplog.text
        await instances.stop()


async def test_aiocache_switched_off_by_its_own_variable_is_as_if_the_tier_were_off(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOCACHE_DISABLE", "1")
    for _ in range(2):
        await instances.add().load(RACE, TOP)
    assert instances.origin.loads == 2


async def test_more_loads_at_once_than_connections_wait_for_one_instead_of_failing(instances: Instances) -> None:
    loader = instances.add()
    keys = [SnapshotKey("race", None, first, first + 99) for first in range(101, 6101, 100)]
    await asyncio.gather(*(loader.load(RACE, key) for key in keys))
    assert instances.outcomes() == {"miss": 60}


def test_four_workers_pay_one_read_per_ttl_and_none_fails_when_the_tier_goes_away() -> None:
    """Whatever the machine's pace: reads are counted against the time that passed, and against four workers' own."""
    with RedisServer() as origin, RedisServer(acl=[ACCOUNT]) as tier:
        origin.call("ZADD", "lb:race", 1, "ann")
        settings = {
            "server": {"workers": 4},
            "redis": {"primary": origin.url, "read_timeout_ms": 20_000, "request_budget_ms": 20_000},
            "shared_tier": {"url": f"redis://tier:secret@{tier.address}/0", "ttl_ms": 500, "timeout_ms": 10_000},
            "leaderboards": [{"name": "race", "key": "lb:race", "ttl_ms": 500, "grace_ms": 20_000}],
        }
        with Gateway(settings) as gateway:
            before, began = origin.commandstats()["zrevrange"], time.monotonic()
            while time.monotonic() - began < 3:
                for _ in range(16):  # a connection each: the kernel spreads them over the workers
                    assert gateway.json("/v1/leaderboards/race/top")["total"] == 1
                time.sleep(0.02)
            reads, ttls = origin.commandstats()["zrevrange"] - before, (time.monotonic() - began) / 0.5
            assert reads <= 2 * ttls + 2, "four workers on their own would read twice that"
            assert gateway.metric("gateway_shared_tier_loads_total", outcome="hit") > 0
            tier.kill()
            origin.call("ZADD", "lb:race", 2, "bob")
            eventually(lambda: all(gateway.json("/v1/leaderboards/race/top")["total"] == 2 for _ in range(16)))
            errors = gateway.stop()
            assert 0 <= errors.count("shared tier fails") <= 4
            assert "secret" not in errors
