"""Replica reads while nodes, links and networks fail: answers stay right, errors in bounds, recovery automatic."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.errors import GatewayError, OriginTimeout, OriginUnavailable, Overloaded
from gateway.model import Standings
from tests.fault.load import MEMBERS, SCORES, check, load
from tests.fault.proxy import FaultProxy
from tests.reading import PATIENT, Reading, pairs, reading, target
from tests.servers import RedisGroup, RedisServer, eventually

pytestmark = pytest.mark.xdist_group("replica_faults")

SLACK_S = 3.0
"""What a machine that stands still for a moment may add to a read."""


@pytest.fixture(scope="module")
def servers(module_stack: contextlib.ExitStack) -> RedisGroup:
    return module_stack.enter_context(RedisGroup(config=["repl-timeout 60", "repl-ping-replica-period 1"]))


@pytest.fixture
def group(servers: RedisGroup) -> Iterator[RedisGroup]:
    """Give a primary and two replicas in sync, with the load's board."""
    servers.reset()
    servers.write("ZADD", "lb:s", *pairs(SCORES))
    yield servers
    for node in servers.nodes:
        if node.frozen:
            node.thaw()


class Proxies:
    """A proxy before each node."""

    def __init__(self, primary: FaultProxy, one: FaultProxy, other: FaultProxy) -> None:
        self.primary, self.one, self.other = primary, one, other
        self.all = (primary, one, other)

    @property
    def ports(self) -> list[int]:
        return [proxy.port for proxy in self.all]


@pytest.fixture
async def proxies(group: RedisGroup) -> AsyncIterator[Proxies]:
    async with contextlib.AsyncExitStack() as stack:
        yield Proxies(*[await stack.enter_async_context(FaultProxy(node.port)) for node in group.nodes])


def ports(group: RedisGroup) -> list[int]:
    return [node.port for node in group.nodes]


async def until(condition: Any, within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


# Callers that leave, replies that are late: nobody gets another's answer


async def test_a_cancelled_read_does_not_shift_the_replies_behind_it(group: RedisGroup, proxies: Proxies) -> None:
    async with reading(proxies.primary.port) as reads:
        proxies.primary.delay(0.05)
        first = asyncio.ensure_future(reads.origin.member(target(), b"m001"))
        await asyncio.sleep(0.02)
        first.cancel()
        members = [b"m002", b"m003"] * 25
        found = await asyncio.gather(*(reads.origin.member(target(), member) for member in members))
        for standings, member in zip(found, members, strict=True):
            check(standings, member)
    assert proxies.primary.accepted == 1, "on the very connection that the cancelled caller used"


async def test_a_thousand_cancelled_callers_leave_nothing_behind(group: RedisGroup, proxies: Proxies) -> None:
    async with reading(*proxies.ports) as reads:
        proxies.one.delay(0.03)
        proxies.other.delay(0.03)
        callers = [asyncio.ensure_future(reads.origin.member(target(), b"m%03d" % (n % MEMBERS))) for n in range(1000)]
        await asyncio.sleep(0.01)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        check(await reads.origin.member(target(), b"m007"), b"m007")
        await until(lambda: all(node.outstanding == 0 for node in reads.reads.nodes()))
        outstanding = reads.counters.gauges["gateway_redis_reads_outstanding"].read()
        assert set(outstanding.values()) == {0.0}


class Crowd:
    """Callers of little patience and a network that fails every few moments, until enough has happened."""

    ROUNDS = 20
    RIGHT = 1000
    LEFT = 100

    def __init__(self, reads: Reading, numbers: random.Random) -> None:
        self.reads, self.origin, self.numbers = reads, reads.origin, numbers
        self.right = self.left = self.rounds = 0
        self.errors: list[GatewayError] = []

    @property
    def goes_on(self) -> bool:
        return self.rounds < self.ROUNDS or self.right < self.RIGHT or not self.lost or self.left <= self.LEFT

    @property
    def lost(self) -> int:
        return self.reads.count("reads", "replica", "lost")

    async def caller(self) -> None:
        while self.goes_on:
            member = b"m%03d" % self.numbers.randrange(MEMBERS)
            try:
                async with asyncio.timeout(self.numbers.choice([0.001, 0.01, 0.05, 5.0])):
                    found = await self.origin.member(target(), member)
            except TimeoutError:
                self.left += 1
            except GatewayError as error:
                self.errors.append(error)
                await asyncio.sleep(0.02)
            else:
                check(found, member)
                self.right += 1
            await asyncio.sleep(0.002)  # all of it, the proxies included, shares one loop

    async def chaos(self, proxies: Proxies) -> None:
        while self.goes_on:
            self.rounds += 1
            proxy = self.numbers.choice(proxies.all[1:])
            match self.numbers.randrange(5):
                case 0:
                    proxy.delay(self.numbers.choice([0.0, 0.01, 0.04]))
                case 1:
                    proxy.reset()
                case 2:
                    proxy.cut(self.numbers.randrange(1, 2000))
                case 3:
                    proxy.hang()
                case _:
                    proxy.slow(2000)
            await asyncio.sleep(0.05)
            await proxy.heal()
            await asyncio.sleep(0.05)


async def test_200_callers_over_few_connections_always_get_the_answer_for_the_member_they_asked(
    group: RedisGroup, proxies: Proxies
) -> None:
    async with reading(*proxies.ports) as reads:
        crowd = Crowd(reads, random.Random(7))
        async with asyncio.timeout(60):
            await asyncio.gather(crowd.chaos(proxies), *(crowd.caller() for _ in range(200)))
    assert all(isinstance(error, OriginUnavailable | OriginTimeout | Overloaded) for error in crowd.errors)


async def test_a_burst_is_answered_over_the_connections_there_are(group: RedisGroup, proxies: Proxies) -> None:
    async with reading(proxies.primary.port) as reads:
        proxies.primary.delay(0.005)
        found = await asyncio.gather(*(reads.origin.member(target(), b"m%03d" % n) for n in range(400)))
        for number, standings in enumerate(found):
            check(standings, b"m%03d" % number)
    assert proxies.primary.accepted <= 3


# One replica in trouble: the other takes over


@pytest.mark.parametrize("fault", ["hang", "drop", "slow", "reset", "refuse"])
async def test_reads_go_on_over_the_other_replica_and_come_back_to_the_first(
    group: RedisGroup, proxies: Proxies, fault: str
) -> None:
    async with reading(*proxies.ports) as reads, load(reads.origin) as seen:
        await until(lambda: reads.states() == ["up", "up", "up"])
        await seen.steady()  # by then there are retries to spare for all that is under way
        from_primary = reads.count("reads", "primary", "ok")
        match fault:
            case "hang":
                proxies.one.hang()
            case "drop":
                proxies.one.drop()
            case "slow":
                proxies.one.slow(100)
            case "reset":
                proxies.one.reset(new_ones_too=True)
            case _:
                await proxies.one.refuse()
        await seen.more(500)
        await until(lambda: reads.states()[1] != "up")
        await seen.steady()  # once it is known, nobody runs into it
        await proxies.one.heal()
        await until(lambda: reads.states() == ["up", "up", "up"])
        await seen.steady()
    assert seen.stale == 0
    assert seen.failed <= 20, f"at most those whose retry the budget refused: {seen.errors}"
    assert seen.slowest_s < PATIENT["request_budget_s"] + SLACK_S, "no read outlasts its budget"
    assert reads.count("reads", "primary", "ok") == from_primary


async def test_a_reply_cut_in_the_middle_is_asked_for_again_elsewhere(group: RedisGroup, proxies: Proxies) -> None:
    async with reading(group.primary.port, proxies.one.port) as reads:
        for number in range(5):
            await until(lambda: reads.states() == ["up", "up"])
            proxies.one.cut(5 * number + 1)
            check(await reads.origin.member(target(), b"m%03d" % number), b"m%03d" % number)
            await proxies.one.heal()
        assert reads.count("reads", "replica", "lost") == 5
        assert reads.count("reads", "primary", "ok") == 5


async def test_a_frozen_replica_is_left_alone_until_it_thaws(group: RedisGroup) -> None:
    async with reading(*ports(group)) as reads, load(reads.origin) as seen:
        await until(lambda: reads.states() == ["up", "up", "up"])
        await seen.steady()  # by then there are retries to spare for all that is under way
        group.replicas[0].freeze()
        await seen.more(500)
        await until(lambda: reads.states()[1] == "broken")
        await seen.steady()
        group.replicas[0].thaw()
        await until(lambda: reads.states()[1] == "up")
        await seen.steady()
    assert seen.failed <= 20
    assert seen.stale == 0


async def test_a_replica_that_loads_its_data_is_left_alone(stack: contextlib.ExitStack) -> None:
    slow_load = ["key-load-delay 20000", "loading-process-events-interval-bytes 1024"]
    group = stack.enter_context(RedisGroup(2, config=slow_load))
    group.write("ZADD", "lb:s", *pairs(SCORES))
    for number in range(300):
        group.call("SET", f"filler:{number}", "x" * 100)
    group.wait_in_sync()
    async with reading(*ports(group)) as reads:
        await until(lambda: reads.states() == ["up", "up", "up"])
        restarting = asyncio.create_task(asyncio.to_thread(group.replicas[0].restart, keep=True, wait=False))
        async with asyncio.timeout(30):
            while reads.states()[1] != "loading":
                check(await reads.origin.member(target(), b"m001"), b"m001")
                await asyncio.sleep(0.01)
        await restarting
        for _ in range(20):
            check(await reads.origin.member(target(), b"m001"), b"m001")
        await asyncio.to_thread(hurry, group.replicas[0])
        await until(lambda: reads.states()[1] == "up")


async def marked(reads: Reading) -> Standings:
    """Return the first answer with the stale mark."""
    async with asyncio.timeout(30):
        while not (found := await reads.origin.member(target(), b"m001")).stamp.stale:
            await asyncio.sleep(0.01)
    return found


def hurry(loading: RedisServer) -> None:
    """Let a node that loads its data, and takes all the time that the test needs, be done with it."""
    eventually(lambda: loading.call("CONFIG", "SET", "key-load-delay", "0"), what="an answer in the middle of it")


async def test_a_lagging_replica_is_not_read_while_another_can_be_and_marked_where_none_can(
    group: RedisGroup,
) -> None:
    lagging, other = group.replicas
    async with FaultProxy(group.primary.port) as link:
        lagging.call("REPLICAOF", "127.0.0.1", link.port)
        try:
            await asyncio.to_thread(group.wait_in_sync)
            async with reading(*ports(group), max_lag_s=0.4) as reads:
                await until(lambda: reads.states() == ["up", "up", "up"])
                link.hang()
                held_since = time.time()
                group.call("ZADD", "lb:s", 10_000, "late")
                await asyncio.to_thread(lambda: eventually(lambda: other.call("ZCARD", "lb:s") == MEMBERS + 1))
                await until(lambda: reads.states()[1] == "lagging")
                lagging.call("CONFIG", "RESETSTAT")
                for _ in range(50):
                    found = await reads.origin.member(target(), b"late")
                    assert (found.total, found.stamp.stale) == (MEMBERS + 1, False)
                assert "zrevrank" not in lagging.commandstats()
            async with reading(group.primary.port, lagging.port, max_lag_s=0.4, primary_fallback=False) as reads:
                await asyncio.sleep(0.1)
                with pytest.raises(OriginUnavailable):  # it has passed no sample of this process's: how old is it?
                    await reads.origin.member(target(), b"m001")
                await link.heal()
                await until(lambda: reads.states() == ["up", "up"])
                link.hang()
                found = await marked(reads)
                assert held_since < found.stamp.as_of < time.time() - 0.4
                await link.heal()
                await until(lambda: reads.states()[1] == "up")
        finally:
            lagging.call("REPLICAOF", "127.0.0.1", group.primary.port)
            await asyncio.to_thread(group.wait_in_sync)


async def test_a_replica_full_of_clients_is_named_and_joins_when_there_is_room(group: RedisGroup) -> None:
    full = group.replicas[0]
    full.call("CONFIG", "SET", "maxclients", "1")
    try:
        async with reading(*ports(group)) as reads, load(reads.origin) as seen:
            await seen.more(300)
            assert reads.reads.nodes()[1].state == "down"
            said = ("ERR", "closed by the node", "Connection reset by peer")
            await until(lambda: reads.reads.nodes()[1].trouble in said)
            full.call("CONFIG", "SET", "maxclients", "1000")
            await until(lambda: reads.states()[1] == "up")
        assert (seen.failed, seen.stale) == (0, 0)
    finally:
        full.call("CONFIG", "SET", "maxclients", "1000")


# No primary: reads go on, marked


async def test_a_dead_primary_does_not_take_the_reads_with_it(group: RedisGroup) -> None:
    began = time.time()
    async with reading(*ports(group)) as reads, load(reads.origin) as seen:
        await until(lambda: reads.states() == ["up", "up", "up"])
        await asyncio.to_thread(group.primary.restart, keep=True, wait=False)
        group.primary.kill()
        await until(lambda: reads.states()[0] == "down" and reads.states()[1:] == ["link_down", "link_down"])
        await seen.steady(500, marked=True)  # every one carries the mark
        found = await reads.origin.member(target(), b"m001")
        assert began < found.stamp.as_of < time.time()
        assert (await reads.origin.window(target(), 1, 100)).stamp.stale
        assert (await reads.origin.member(target(), b"nobody")).missing, "an absent member of a present board"
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(b"lb:ghost"), b"x")  # an absent key cannot be said
        await asyncio.to_thread(group.primary.start)
        await until(lambda: reads.states() == ["up", "up", "up"])
        await seen.steady()  # no mark on any of them


async def test_a_primary_that_only_the_gateway_cannot_reach_leaves_the_replicas_readable_and_marked(
    group: RedisGroup, proxies: Proxies
) -> None:
    async with (
        reading(*proxies.ports, max_lag_s=0.4, primary_max_reads_per_s=1e6) as reads,
        load(reads.origin) as seen,
    ):
        await seen.steady()  # by then there are retries to spare for all that wait for the primary
        proxies.primary.drop()
        await until(lambda: reads.states()[1:] == ["lagging", "lagging"])
        await seen.more(100)
        await marked(reads)
        with pytest.raises(GatewayError):
            await reads.origin.member(target(b"lb:ghost"), b"x")
        await proxies.primary.heal()
        await until(lambda: reads.states() == ["up", "up", "up"])
        check(await reads.origin.member(target(), b"m001"), b"m001")
    assert seen.failed == 0


async def test_replicas_without_a_primary_are_read_for_failover_stale_s_and_no_longer(group: RedisGroup) -> None:
    async with reading(*ports(group), max_lag_s=0.4, failover_stale_s=7.0) as reads:
        await until(lambda: reads.states() == ["up", "up", "up"])
        group.primary.kill()
        await until(lambda: reads.states() == ["down", "link_down", "link_down"])
        assert (await reads.origin.member(target(), b"m001")).stamp.stale
        await until(lambda: not reads.reads.up())
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(), b"m001")


async def test_a_replica_restarted_empty_while_the_primary_is_down_is_not_believed(group: RedisGroup) -> None:
    async with reading(*ports(group)) as reads, load(reads.origin) as seen:
        group.primary.kill()
        await until(lambda: reads.states()[1] == "link_down")
        await asyncio.to_thread(group.replicas[0].restart)
        await until(lambda: reads.states()[1] == "unproven")
        await seen.more(500)
        assert group.replicas[0].commandstats().get("evalsha", 0) == 0
        group.replicas[1].kill()
        await until(lambda: reads.states()[2] == "down")
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(), b"m001")
    async with reading(*ports(group)) as fresh:  # and no more by a gateway that has only just started
        await asyncio.sleep(1.0)
        with pytest.raises(OriginUnavailable):
            await fresh.origin.member(target(), b"m001")


async def test_a_gateway_started_while_the_primary_is_dead_reads_replicas_that_were_in_sync(group: RedisGroup) -> None:
    killed = time.time()
    group.primary.kill()
    for replica in group.replicas:
        await asyncio.to_thread(lambda at=replica: eventually(lambda: at.info()["master_link_status"] == "down"))  # type: ignore[misc]
    died = time.time()
    async with reading(*ports(group), max_lag_s=0.4) as reads:
        await until(reads.reads.up)
        found = await reads.origin.member(target(), b"m001")
        check(found, b"m001")
        assert found.stamp.stale
        assert killed - 2 < found.stamp.as_of <= died + 1, "Redis says it in whole seconds"


async def test_a_replica_that_may_not_serve_stale_data_is_passed_over(group: RedisGroup) -> None:
    strict, _ = group.replicas
    strict.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    try:
        async with reading(*ports(group)) as reads, load(reads.origin) as seen:
            await until(lambda: reads.states() == ["up", "up", "up"])
            await seen.steady()  # by then there are retries to spare for all that is under way
            group.primary.kill()
            await until(lambda: reads.states()[1] == "resting")
            await seen.more(300)
            assert seen.failed <= 5
        async with reading(group.primary.port, strict.port) as alone:
            await until(lambda: alone.states()[1] == "resting")
            with pytest.raises(OriginUnavailable):
                await alone.origin.member(target(), b"m001")
            await until(lambda: not alone.reads.up())
    finally:
        strict.call("CONFIG", "SET", "replica-serve-stale-data", "yes")


async def test_with_every_replica_gone_the_primary_is_read_within_its_allowance(group: RedisGroup) -> None:
    async with reading(*ports(group), primary_max_reads_per_s=100) as reads:
        for replica in group.replicas:
            replica.kill()
        await until(lambda: reads.states()[1:] == ["down", "down"])
        results = await asyncio.gather(
            *(reads.origin.member(target(), b"m%03d" % n) for n in range(200)), return_exceptions=True
        )
        refused = [result for result in results if isinstance(result, Overloaded)]
        answered = [result for result in results if not isinstance(result, BaseException)]
        assert len(refused) + len(answered) == 200
        assert 5 <= len(answered) <= 40
        assert not any(standings.stamp.stale for standings in answered)


# Everything gone


async def test_a_frozen_redis_costs_a_read_its_budget_at_most_and_later_ones_nothing(group: RedisGroup) -> None:
    server = group.primary
    async with reading(server.port) as reads:
        await until(reads.reads.up)
        server.freeze()
        began = time.monotonic()
        with pytest.raises(OriginUnavailable):  # one attempt, and nobody else to ask: there was budget left
            await reads.origin.member(target(), b"m001")
        assert time.monotonic() - began < PATIENT["request_budget_s"]
        await until(lambda: reads.states()[0] == "broken")
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(OriginUnavailable):
                await reads.origin.member(target(), b"m001")
        assert time.monotonic() - began < 10 * PATIENT["read_timeout_s"], "nobody waits for what is known to hang"
        server.thaw()
        await until(reads.reads.up)
        check(await reads.origin.member(target(), b"m001"), b"m001")


async def test_all_nodes_gone_and_back_needs_no_restart(group: RedisGroup, proxies: Proxies) -> None:
    async with reading(*proxies.ports) as reads, load(reads.origin) as seen:
        for proxy in proxies.all:
            await proxy.refuse()
        await until(lambda: seen.failed > 100)
        for proxy in proxies.all:
            await proxy.heal()
        await until(lambda: reads.states() == ["up", "up", "up"])
        await seen.steady()
        assert set(seen.errors) <= {"OriginUnavailable", "OriginTimeout", "Overloaded"}


async def test_nothing_is_left_open_or_running_after_a_stop_in_the_middle_of_it_all(
    group: RedisGroup, proxies: Proxies
) -> None:
    callers = []
    async with reading(*proxies.ports) as reads:
        for proxy in proxies.all:
            proxy.hang()
        callers = [asyncio.ensure_future(reads.origin.member(target(), b"m001")) for _ in range(20)]
        await asyncio.sleep(0.02)
    for ended in await asyncio.gather(*callers, return_exceptions=True):
        assert isinstance(ended, OriginUnavailable | OriginTimeout)
    for proxy in proxies.all:
        await proxy.heal()
    await until(lambda: all(proxy.open == 0 for proxy in proxies.all))
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in names if name.startswith(("open ", "close ", "replica health", "resolve names"))}
