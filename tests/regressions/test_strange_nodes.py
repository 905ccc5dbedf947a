"""Nodes that are not what the settings take them for: other data, another account. Answers stay those of the board."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import pytest

from gateway.errors import OriginUnavailable
from gateway.replicas.login import Login
from tests.fault.load import SCORES, load
from tests.reading import pairs, reading, target
from tests.servers import RedisGroup, eventually

pytestmark = pytest.mark.xdist_group("strange_nodes")

ACCOUNT = "user gateway on >sec ~* resetchannels -@all +@read +evalsha +script|load +info +ping +client|setname"


async def until(states: list[str], now: Callable[[], list[str]]) -> None:
    async with asyncio.timeout(30):
        while now() != states:
            await asyncio.sleep(0.02)


async def test_another_primary_and_its_replica_among_ours_are_never_read_not_even_when_ours_dies(
    stack: contextlib.ExitStack,
) -> None:
    ours, foreign = stack.enter_context(RedisGroup(1)), stack.enter_context(RedisGroup(1))
    ours.write("ZADD", "lb:s", *pairs(SCORES))
    foreign.write("ZADD", "lb:s", 1, "m000", 2, "somebody")
    ports = [node.port for node in (*ours.nodes, *foreign.nodes)]
    async with reading(*ports, failover_stale_s=2.0) as reads:
        await until(["up", "up", "wrong_role", "unproven"], reads.states)
        async with load(reads.origin, readers=5) as seen:
            await seen.more(100)
            assert not seen.stale
            ours.primary.kill()
            await seen.more(100)
            await until(["down", "link_down", "wrong_role", "unproven"], reads.states)
        async with asyncio.timeout(30):
            while reads.reads.up():
                await asyncio.sleep(0.02)
        with pytest.raises(OriginUnavailable):
            await reads.origin.member(target(), b"m000")


async def test_a_replica_of_a_node_that_was_detached_is_not_in_step_with_the_primary(
    stack: contextlib.ExitStack,
) -> None:
    group = stack.enter_context(RedisGroup(2))
    group.write("ZADD", "lb:s", *pairs(SCORES))
    _, detached, follower = group.nodes
    ports = [node.port for node in group.nodes]
    async with (
        reading(*ports, max_lag_s=0.4, primary_max_reads_per_s=1e6) as reads,
        load(reads.origin, readers=5) as seen,
    ):
        detached.call("REPLICAOF", "NO", "ONE")
        follower.call("REPLICAOF", "127.0.0.1", detached.port)
        await until(["up", "wrong_role", "lagging"], reads.states)
        # A busy machine may call a node lagging for a moment; only from the next look on does the new link say so.
        await asyncio.sleep(1.2)
        await until(["up", "wrong_role", "lagging"], reads.states)
        detached.call("ZADD", "lb:s", 1, "a way of its own")
        await asyncio.to_thread(lambda: eventually(lambda: follower.call("ZCARD", "lb:s") == len(SCORES) + 1))
        await seen.more(100)
        assert not seen.stale


async def test_a_node_whose_account_lacks_a_command_is_left_out_and_said_once(
    stack: contextlib.ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    group = stack.enter_context(RedisGroup(2, acl=[ACCOUNT]))
    group.write("ZADD", "lb:s", *pairs(SCORES))
    login = Login(username="gateway", password="sec")
    async with reading(*[node.port for node in group.nodes], login=login) as reads:
        caplog.set_level(logging.INFO)
        async with load(reads.origin) as seen:
            await until(["up", "up", "up"], reads.states)
            await seen.steady()  # by then there are retries to spare for all that is under way
            caplog.clear()
            group.replicas[0].call("ACL", "SETUSER", "gateway", "-evalsha")
            for _ in range(6):
                await seen.more(100)
                await asyncio.sleep(0.5)
            assert not seen.failed, seen.errors
            assert not seen.stale
        said = [record for record in caplog.records if group.replicas[0].address in record.getMessage()]
        assert [record.levelname for record in said] == ["ERROR", "WARNING"], caplog.text
