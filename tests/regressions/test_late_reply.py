"""A reply that is taken in late, by a process that was held up, says when it was read, and not when it was taken in."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.model import ReadFrom
from tests.fault.proxy import FaultProxy
from tests.reading import pairs, reading, target
from tests.servers import RedisGroup, eventually


@pytest.mark.parametrize("read_from", ["replicas", "primary"])
async def test_no_answer_is_newer_by_its_as_of_than_a_write_that_it_lacks(
    redis_group: RedisGroup, read_from: ReadFrom
) -> None:
    primary = redis_group.primary
    primary.call("ZADD", "lb:s", *pairs({b"ann": 1.0}))
    async with (
        FaultProxy(primary.port) as proxy,
        reading(proxy.port, read_timeout_s=10.0, request_budget_s=20.0) as reads,
    ):
        proxy.down.hanging = True
        asked = asyncio.create_task(reads.origin.member(target(read_from=read_from), b"ann"))
        await asyncio.to_thread(lambda: eventually(lambda: primary.commandstats().get("evalsha", 0) == 1))
        was_read = time.time()
        primary.call("ZADD", "lb:s", 2.0, "ann")
        await proxy.heal()
        found = await asked
    assert found.entries[0].score == 1.0
    assert found.stamp.as_of <= was_read
