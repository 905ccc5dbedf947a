"""Fixed: one primary and its replicas, as configured; names are resolved, and resolved again.

Knows: configured addresses, name resolution, which node says that it is what.
Must not know: health, choice, commands.

A name may stand for several nodes (reader endpoints) and for others tomorrow. Names are resolved every few seconds off
the request path, and at once when a node cannot be reached. A name that cannot be resolved keeps its last addresses.

A failover that somebody else made is followed: while the configured primary does not say that it is one, a single
replica that does takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from gateway.clock import Clock
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Node, Nodes
from gateway.replicas.topology import Redirect, Role, Shard

RESOLVE_S = 5.0
PAUSE_S = 0.5
"""Between two resolutions, however many nodes are in trouble."""

Resolve: TypeAlias = Callable[[Address], Awaitable[Sequence[Address]]]

log = logging.getLogger("gateway.replicas")


async def resolve(address: Address) -> Sequence[Address]:
    """Return every address that a name stands for now, sorted. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return sorted({Address(str(sockaddr[0]), address.port) for *_, sockaddr in found})


class FixedTopology:
    """One shard. See ``topology.Topology`` for the methods."""

    def __init__(
        self,
        nodes: Nodes,
        primary: Address,
        replicas: Sequence[Address],
        login: Login,
        *,
        clock: Clock,
        resolve: Resolve = resolve,
    ) -> None:
        self._nodes, self._login, self._clock, self._resolve = nodes, login, clock, resolve
        self._names = (primary, *replicas)
        self._known: dict[Address, Sequence[Address]] = {}
        self._shard = Shard(None, (), expects_replicas=bool(replicas), answered_at=clock.monotonic())
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Resolve once and begin to connect; go on resolving behind."""
        await self._refresh()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="resolve names")

    async def stop(self) -> None:
        """End resolving."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def for_key(self, key: bytes) -> Shard:  # noqa: ARG002  # every key lives in the one shard
        """Return the one shard."""
        return self._shard

    def shards(self) -> Sequence[Shard]:
        """Return the one shard."""
        return (self._shard,)

    def redirected(self, redirect: Redirect) -> Node | None:  # noqa: ARG002  # there is nowhere else
        """Return None: nodes that redirect are a Cluster, and configured as something else."""
        return None

    def contradicted(self, node: Node, role: Role) -> None:  # noqa: ARG002  # all nodes' words are looked at
        """Look again at who says that it is the primary."""
        self._arrange()

    def troubled(self, node: Node) -> None:  # noqa: ARG002  # names are resolved all at once
        """Resolve the names soon."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESOLVE_S):
                    await self._wake.wait()
            self._wake.clear()
            await self._refresh()
            await self._clock.sleep(PAUSE_S)

    async def _refresh(self) -> None:
        for name in self._names:
            try:
                self._known[name] = await self._resolve(name)
            except OSError as error:
                if name not in self._known:
                    log.warning("the name %s cannot be resolved (%s)", name, error.strerror)
        self._arrange()

    def _arrange(self) -> None:
        """Make the shard anew if its nodes have changed."""
        first, *others = ([self._node(name, address) for address in self._known.get(name, ())] for name in self._names)
        everyone = list(dict.fromkeys([*first, *(node for group in others for node in group)]))
        primary = self._primary(first, everyone)
        replicas = tuple(node for node in everyone if node is not primary)
        if (primary, replicas) != (self._shard.primary, self._shard.replicas):
            self._shard = self._shard.followed_by(primary, replicas)
            self._nodes.retain(everyone)

    def _node(self, name: Address, address: Address) -> Node:
        login = self._login
        return self._nodes.node(address, replace(login, tls_name=name.host) if login.tls else login)

    @staticmethod
    def _primary(configured: Sequence[Node], everyone: Sequence[Node]) -> Node | None:
        for node in configured:
            if node.health.role == "primary" and node.ready:
                return node
        others = [node for node in everyone if node.health.role == "primary" and node.ready]
        if len(others) == 1:
            return others[0]
        return configured[0] if configured else None
