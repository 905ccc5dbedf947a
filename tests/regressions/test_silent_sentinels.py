"""A start without any Sentinel is said in the log, once: every answer is 503 then, and nothing else would say why."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.clock import SystemClock
from gateway.replicas.discovery import Account
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Nodes
from gateway.replicas.sentinel import SentinelTopology
from tests.servers import free_port


async def test_a_start_without_sentinels_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    nodes = Nodes(clock=clock, random=random.Random(1), scripts=(), read_timeout_s=0.2)
    nobody = Address("127.0.0.1", free_port())
    topology = SentinelTopology(nodes, [nobody], "mine", login=Login(), account=Account(), clock=clock)
    await topology.start()
    await asyncio.gather(*(topology._refresh() for _ in range(3)))
    await topology.stop()
    assert [record.getMessage() for record in caplog.records] == ["no Sentinel says where mine is"]
