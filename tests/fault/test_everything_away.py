"""All nodes go down, for long, and come back where they were or elsewhere: all is well within seconds, by itself.

``OUTAGE_SECONDS=20`` makes each outage as long as the one it stands for. For a Cluster see ``test_failover``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tests.fault.watch import QUICK, Load, fill, outage
from tests.origins import RealOrigin, origin_at, soon
from tests.servers import RedisGroup, RedisServer, SentinelGroup, free_port

pytestmark = pytest.mark.xdist_group("failover")

RECOVERY_S = 2.0
SLACK_S = 8.0
"""What a machine that does other things besides may add, and the half second of answers that shows a recovery."""


def come_back(group: RedisGroup, *, elsewhere: bool) -> None:
    """Start every node with its data, at its old address or at a new one, and wait until they are in sync."""
    for node in group.nodes:
        node.port = free_port() if elsewhere else node.port
    for node in group.nodes:
        node.start(wait=False)
    for node in group.nodes:
        node.wait_until(node.answers)
    group.wait_in_sync()


async def all_is_well(origin: RealOrigin, load: Load, group: RedisGroup) -> None:
    """Wait for fresh answers, from the nodes that there are now and no others."""
    await load.fresh_again(within_s=RECOVERY_S + SLACK_S)
    addresses = {node.address: "up" for node in group.nodes}
    await soon(lambda: origin.states() == addresses, what="every node that there is, and no other")


class NameServer:
    """Names that stand for servers; which of their ports is answered with them, since all have one host."""

    def __init__(self, names: Mapping[str, RedisServer]) -> None:
        self.names, self._ports = names, dict[str, int]()
        self._ask = socket.getaddrinfo
        self.changes()

    def changes(self) -> None:
        """Name every server's address of now."""
        self._ports = {name: server.port for name, server in self.names.items()}

    def answer(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        """Stand in for ``socket.getaddrinfo``."""
        if host not in self.names:
            return self._ask(host, port, *args, **more)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", self._ports[host]))]


async def test_fixed_nodes_are_found_again_at_their_addresses_and_at_others_behind_the_same_names(
    stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = stack.enter_context(RedisGroup(2))
    fill(group)
    name_server = NameServer(dict(zip(("primary.test", "one.test", "other.test"), group.nodes, strict=True)))
    monkeypatch.setattr(socket, "getaddrinfo", name_server.answer)
    primary, *replicas = (f"redis://{name}:6379" for name in name_server.names)
    async with origin_at({"primary": primary, "replicas": replicas, **QUICK}) as origin, Load(origin) as load:
        await load.begin()
        for elsewhere in (False, True):
            await outage(group.nodes, load)
            await asyncio.to_thread(come_back, group, elsewhere=elsewhere)
            name_server.changes()
            await all_is_well(origin, load, group)
    load.check()


async def test_nodes_that_come_back_elsewhere_are_found_as_soon_as_the_sentinels_name_them(
    stack: contextlib.ExitStack,
) -> None:
    group = stack.enter_context(SentinelGroup(down_after_ms=60_000))  # no failover: none of them has to be dead for it
    fill(group)
    async with origin_at({**group.settings, **QUICK}) as origin, Load(origin) as load:
        await load.begin()

        await outage(group.nodes, load)  # the Sentinels go on naming addresses where nobody is
        await asyncio.to_thread(come_back, group, elsewhere=True)
        for sentinel in group.sentinels:
            sentinel.call("SENTINEL", "REMOVE", "leaderboards")
            sentinel.call("SENTINEL", "MONITOR", "leaderboards", "127.0.0.1", group.primary.port, 2)
        await asyncio.to_thread(group.wait_known)
        await all_is_well(origin, load, group)

        for sentinel in group.sentinels:
            sentinel.kill()
        await outage(group.nodes, load)
        await asyncio.to_thread(come_back, group, elsewhere=True)
        await asyncio.to_thread(group.start_sentinels)
        await all_is_well(origin, load, group)
    load.check()
