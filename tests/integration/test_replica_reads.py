"""Replica reads against real nodes that work: where reads go, what they cost, which accounts do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from gateway.clock import SystemClock
from gateway.counters import Counters
from gateway.errors import OriginUnavailable, WrongType
from gateway.layouts.scripts import SCRIPTS, scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.replicas import monitor
from gateway.replicas.build import build
from gateway.replicas.login import Login
from gateway.settings.redis import RedisSettings
from tests.accounts import HEALTH
from tests.accounts import READS as READING
from tests.fault.load import SCORES, check, load
from tests.origins import soon
from tests.reading import Reading, pairs, reading, target
from tests.servers import Certificates, RedisGroup, RedisServer

pytestmark = pytest.mark.xdist_group("replica_reads")

READS = {"zrevrange", "zrange", "zrevrank", "zrank", "zscore", "zcard", "zcount", "evalsha", "hmget"}


@pytest.fixture(scope="module")
def group(module_stack: contextlib.ExitStack) -> RedisGroup:
    return module_stack.enter_context(RedisGroup())


@pytest.fixture
def board(group: RedisGroup) -> RedisGroup:
    """Give the group with the load's board on it, statistics at zero."""
    group.reset()
    group.write("ZADD", "lb:s", *pairs(SCORES))
    for node in group.nodes:
        node.call("CONFIG", "RESETSTAT")
    return group


PATIENT: dict[str, Any] = {"read_timeout_s": 15.0, "request_budget_s": 30.0, "max_lag_s": 60.0}
"""Time to spare: where nothing fails, a machine that stands still for a moment must not look like a failing one."""


@contextlib.asynccontextmanager
async def calm(group: RedisGroup, *, up: bool = True, **how: Any) -> AsyncIterator[Reading]:
    """Read with time to spare, and only once every node is ``up``: until then the primary stands in for others."""
    replicas = [node.port for node in group.replicas]
    async with reading(group.primary.port, *replicas, **PATIENT, **how) as reads:
        if up:
            await soon(lambda: set(reads.states()) == {"up"}, within_s=30)
        yield reads


def reads_on(stats: Mapping[str, int]) -> dict[str, int]:
    return {name: calls for name, calls in stats.items() if name in READS}


async def every_route(reads: Reading) -> None:
    for order in ("desc", "asc"):
        for ties in ("ordinal", "competition"):
            here = target(order=order, ties=ties, profiles_key=b"lb:names")
            await reads.origin.window(here, 1, 100)
            await reads.origin.neighbors(here, b"m250", 5, 5)
            await reads.origin.members(here, [b"m001", b"m002", b"nobody"])
            assert (await reads.origin.member(here, b"m250")).entries


async def test_no_read_reaches_the_primary_while_replicas_are_usable_and_all_take_their_share(
    board: RedisGroup,
) -> None:
    async with calm(board) as reads:
        async with load(reads.origin) as seen, asyncio.timeout(90):
            # A replica that stood still for a moment is the slower one for a while: it has to win its share back.
            while not all_have_a_share(await calls_while(seen.more(1000, within_s=60), board.replicas)):
                pass
        await every_route(reads)
    assert (seen.failed, seen.stale) == (0, 0)
    assert reads_on(board.primary.commandstats()) == {}


async def calls_while(reading: Awaitable[None], nodes: list[RedisServer]) -> list[int]:
    """Return how many ranks each of these nodes was asked for meanwhile."""
    before = [node.commandstats().get("zrevrank", 0) for node in nodes]
    await reading
    return [node.commandstats().get("zrevrank", 0) - calls for node, calls in zip(nodes, before, strict=True)]


def all_have_a_share(calls: list[int]) -> bool:
    return min(calls) > sum(calls) / 10


async def test_a_read_is_one_round_trip_and_ranges_are_named_by_their_order(board: RedisGroup) -> None:
    async with calm(board) as reads:
        await reads.origin.window(target(), 1, 100)
        await reads.origin.window(target(order="asc"), 1, 100)
        await reads.origin.member(target(), b"m001")
    stats = board.commandstats()
    assert (stats["evalsha"], stats["zrevrange"], stats["zrange"], stats["zrevrank"]) == (3, 1, 1, 1)


async def test_thousands_of_reads_share_a_few_connections(board: RedisGroup) -> None:
    async with calm(board) as reads:
        before = [int(node.info("stats")["total_connections_received"]) for node in board.nodes]
        for _ in range(5):
            results = await asyncio.gather(*(reads.origin.member(target(), b"m%03d" % n) for n in range(400)))
            for number, found in enumerate(results):
                check(found, b"m%03d" % number)
        after = [int(node.info("stats")["total_connections_received"]) for node in board.nodes]
    assert all(new - old <= 2 for new, old in zip(after, before, strict=True))
    closed = lambda: all(b"leaderboard-gateway" not in clients(node) for node in board.nodes)  # noqa: E731
    await soon(closed, what="all are closed at the end")


def clients(node: RedisServer) -> bytes:
    return repr(node.call("CLIENT", "LIST")).encode()


async def test_a_script_cache_flushed_under_load_costs_no_answer(board: RedisGroup) -> None:
    async with calm(board, preload=False) as reads, load(reads.origin) as seen:
        for _ in range(5):
            for replica in board.replicas:
                replica.call("SCRIPT", "FLUSH")
            await seen.more(100, within_s=60)
    assert (seen.failed, seen.stale) == (0, 0)
    assert reads.count("reads", "replica", "reloaded") >= 5, "whichever replica is asked has to be told again"


async def test_an_absent_board_is_asked_about_on_the_primary_once_a_second_however_many_ask(board: RedisGroup) -> None:
    ghost = target(b"lb:ghost")
    async with calm(board) as reads:
        began = time.monotonic()
        for _ in range(10):
            found = await asyncio.gather(*(reads.origin.member(ghost, b"m%d" % n) for n in range(100)))
            assert {standings.total for standings in found} == {0}
        seconds = time.monotonic() - began
    stats = board.primary.commandstats()
    assert 1 <= stats["exists"] <= seconds + 2
    assert reads_on(stats) == {}


async def test_invented_members_of_a_living_board_never_reach_the_primary(board: RedisGroup) -> None:
    async with calm(board) as reads:
        for number in range(300):
            assert (await reads.origin.member(target(), b"invented-%d" % number)).missing
    assert reads_on(board.primary.commandstats()) == {}


async def test_a_replica_that_lost_a_key_which_lives_is_not_believed(board: RedisGroup) -> None:
    for replica in board.replicas:
        replica.call("CONFIG", "SET", "replica-read-only", "no")
        replica.call("DEL", "lb:s")
        replica.call("CONFIG", "SET", "replica-read-only", "yes")
    async with calm(board) as reads:
        check(await reads.origin.member(target(), b"m042"), b"m042")
        window = await reads.origin.window(target(), 1, 3)
    assert (window.total, [row.member for row in window.entries]) == (500, [b"m499", b"m498", b"m497"])


async def test_a_board_that_has_expired_is_gone_though_replicas_still_hold_it(board: RedisGroup) -> None:
    board.primary.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")  # nobody deletes it: replicas only know that its time is over
    try:
        board.write("ZADD", "lb:day", 1, "ann")
        async with calm(board) as reads:
            day = target(b"lb:day")
            assert (await reads.origin.member(day, b"ann")).total == 1
            board.write("PEXPIRE", "lb:day", 50)
            await asyncio.sleep(0.1)
            assert (await reads.origin.member(day, b"ann")).total == 0
            assert (await reads.origin.window(day, 1, 10)).total == 0
    finally:
        board.primary.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")


async def test_the_configured_database_is_the_one_that_is_read(stack: contextlib.ExitStack) -> None:
    server = stack.enter_context(RedisServer())
    server.call("ZADD", "lb:s", 1, "ann")
    server.call("MOVE", "lb:s", 3)
    async with reading(server.port, login=Login(database=3), **PATIENT) as reads:
        assert (await reads.origin.member(target(), b"ann")).total == 1


async def test_a_board_read_from_the_primary_is_read_nowhere_else(board: RedisGroup) -> None:
    async with calm(board) as reads:
        final = target(read_from="primary")
        check(await reads.origin.member(final, b"m100"), b"m100")
        await reads.origin.window(final, 1, 100)
    assert [sum(reads_on(replica.commandstats()).values()) for replica in board.replicas] == [0, 0]
    assert board.primary.commandstats()["evalsha"] == 2


async def test_a_key_of_another_type_is_one_line_and_no_outage(
    board: RedisGroup, caplog: pytest.LogCaptureFixture
) -> None:
    board.write("SET", "lb:str", "x")
    async with calm(board) as reads:
        for _ in range(20):
            with pytest.raises(WrongType):
                await reads.origin.member(target(b"lb:str"), b"a")
        check(await reads.origin.member(target(), b"m001"), b"m001")
        assert reads.states() == ["up", "up", "up"]
    assert len([record for record in caplog.records if "WRONGTYPE" in record.getMessage()]) == 1
    assert reads.count("retries", "made") == 0


@pytest.mark.parametrize("protocol", [2, 3])
async def test_an_account_with_exactly_the_commands_needed_does_and_a_wrong_password_is_named(
    stack: contextlib.ExitStack, protocol: Literal[2, 3], caplog: pytest.LogCaptureFixture
) -> None:
    hello = " +hello" if protocol == 3 else ""
    lines = [f"user gateway on >secret-word ~lb:* resetchannels -@all {READING} {HEALTH}{hello}"]
    group = stack.enter_context(RedisGroup(1, password="admin-word", acl=lines))
    group.write("ZADD", "lb:s", *pairs(SCORES))
    login = Login(username="gateway", password="secret-word", protocol=protocol)
    async with calm(group, login=login) as reads:
        await every_route(reads)
        assert (await reads.origin.member(target(b"lb:ghost"), b"x")).total == 0
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(b"other:s"), b"x")
        assert reads.states() == ["up", "up"]
    assert all("refused" not in record.getMessage() for record in caplog.records)
    wrong = Login(username="gateway", password="not-the-word", protocol=protocol)
    async with calm(group, up=False, login=wrong) as reads:
        await soon(lambda: {node.trouble for node in reads.reads.nodes()} == {"WRONGPASS"})
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(), b"m001")
    assert "-word" not in caplog.text


async def test_settings_with_tls_and_a_password_file_reach_real_nodes(
    stack: contextlib.ExitStack, certificates: Certificates, tmp_path: Path
) -> None:
    group = stack.enter_context(RedisGroup(1, password="word", tls=certificates))
    group.write("ZADD", "lb:s", *pairs(SCORES))
    (tmp_path / "password").write_text("word\n")
    urls: dict[str, Any] = {
        "primary": group.primary.url.replace("127.0.0.1", "localhost"),
        "replicas": [url.replace("127.0.0.1", "localhost") for url in group.settings["replicas"]],
    }
    patient: dict[str, Any] = {"read_timeout_ms": 15_000, "request_budget_ms": 30_000, "max_lag_ms": 60_000}
    secured: dict[str, Any] = {"password_file": tmp_path / "password", "tls": True, "tls_ca_file": certificates.ca}
    settings = RedisSettings(**urls, **secured, **patient)
    clock = SystemClock()
    reads = build(settings, scripts=scripts_of(*SCRIPTS), clock=clock, counters=Counters(), random=random.Random(1))
    await reads.start()
    try:
        origin = SortedSetOrigin(reads, clock=clock, request_budget_s=settings.request_budget_s)
        check(await origin.member(target(), b"m123"), b"m123")
        await soon(lambda: {node.state for node in reads.nodes()} == {"up"}, within_s=30)
        assert re.fullmatch(r"\d+\.\d+\.\d+", reads.nodes()[0].version)
    finally:
        await reads.stop()


async def test_starting_while_redis_is_away_is_quick_and_ends_by_itself(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever could be waited for lasts a minute here, so that waiting cannot be taken for a busy machine."""
    monkeypatch.setattr(monitor, "_FIRST_LOOK_S", 60.0)
    server = RedisServer()
    stack.callback(server.close)
    began = time.monotonic()
    async with reading(server.port, read_timeout_s=60.0, request_budget_s=60.0) as reads:
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(), b"m001")
        assert time.monotonic() - began < 30, "neither the start nor a read waits for a node that refuses"
        assert not reads.reads.up()
        server.start()
        server.call("ZADD", "lb:s", *pairs(SCORES))
        await soon(reads.reads.up, within_s=30)
        check(await reads.origin.member(target(), b"m001"), b"m001")
        assert (await reads.origin.member(target(b"lb:ghost"), b"x")).total == 0, "the only node is the owner"
    assert server.commandstats().get("exists", 0) == 0
