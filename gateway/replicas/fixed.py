"""Fixed: one primary and its replicas, as configured; names are resolved, and resolved again.

Knows: configured addresses, name resolution, which node says that it is what.
Must not know: health, choice, commands.

A name may stand for several nodes (reader endpoints) and for others tomorrow. Names are resolved every few seconds off
the request path, and soon after a node could not be reached. A name that cannot be resolved keeps its last addresses;
one that stands for addresses of both families (``localhost``) counts by the family that answers.

A failover that somebody else made is followed: while the configured primary does not say that it is one, a single
replica that does takes its place, unless it was a primary of other data all along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from gateway.clock import Clock
from gateway.replicas.discovery import Refresher, Resolve, resolve
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Node, Nodes
from gateway.replicas.topology import Redirect, Role, Shard

RESOLVE_S = 5.0
PATIENCE_S = 1.0
"""How long a start waits for the first resolution: a name server that hangs must not keep a gateway from living."""

log = logging.getLogger("gateway.replicas")


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
        self._nodes, self._login, self._resolve = nodes, login, resolve
        self._primary, self._replicas = primary, tuple(replicas)
        self._known: dict[Address, Sequence[Address]] = {}
        self._unresolved: set[Address] = set()
        self._family: dict[Address, bool] = {}
        """The family that answers, of names that have both: True for IPv6."""
        self._shard = Shard(None, (), expects_replicas=bool(replicas), answered_at=clock.monotonic())
        self._refresher = Refresher(self._refresh, clock, every_s=RESOLVE_S)

    async def start(self) -> None:
        """Resolve once and begin to connect; go on resolving behind."""
        await self._refresher.start(patience_s=PATIENCE_S)

    async def stop(self) -> None:
        """End resolving."""
        await self._refresher.stop()

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
        self._refresher.wake()

    async def _refresh(self) -> bool:
        names = tuple(dict.fromkeys((self._primary, *self._replicas)))
        # What is raised for one name, whatever it is, must not lose what was found of the others.
        answers = await asyncio.gather(*map(self._resolve, names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            fault = answer if isinstance(answer, BaseException) else None
            addresses = () if isinstance(answer, BaseException) else answer
            if addresses:
                self._known[name] = sorted(addresses)  # a name server turns the order; the shard must not turn with it
                self._unresolved.discard(name)
            elif name not in self._unresolved:
                self._unresolved.add(name)
                log.warning("the name %s cannot be resolved", name, exc_info=fault)
        self._arrange()
        return not self._unresolved

    def _arrange(self) -> None:
        """Make the shard anew if its nodes have changed."""
        first = self._nodes_of(self._primary)
        others = [node for name in self._replicas for node in self._nodes_of(name)]
        primary = self._choose_primary(first, others)
        # While another has its place the configured primary is watched: it may be a replica now, or claim it back.
        former = [node for node in first if primary not in first or node.health.role == "replica"]
        replicas = tuple(node for node in dict.fromkeys([*others, *former]) if node is not primary)
        if (primary, replicas) != (self._shard.primary, self._shard.replicas):
            self._shard = self._shard.followed_by(primary, replicas)
        self._nodes.retain([*first, *others])

    def _nodes_of(self, name: Address) -> list[Node]:
        login = replace(self._login, tls_name=name.host) if self._login.tls else self._login
        addresses = self._known.get(name, ())
        families: dict[bool, list[Address]] = {}
        for address in addresses:
            families.setdefault(":" in address.host, []).append(address)
        if len(families) < 2:
            return [self._nodes.node(address, login) for address in addresses]
        # One server may be there twice, or listen in one family only. The one that answers stays while it does.
        chosen = self._family.get(name)
        if chosen is not None:
            nodes = [self._nodes.node(address, login) for address in families[chosen]]
            if any(node.ready for node in nodes):
                return nodes
        everyone = [self._nodes.node(address, login) for address in addresses]
        answering = [node for node in everyone if node.ready]
        if not answering:
            self._family.pop(name, None)
            return everyone
        self._family[name] = family = ":" in answering[0].address.host
        return [node for node in everyone if (":" in node.address.host) == family]

    @staticmethod
    def _choose_primary(configured: Sequence[Node], others: Sequence[Node]) -> Node | None:
        for node in configured:
            if node.health.role == "primary" and node.ready:
                return node
        promoted = [
            node for node in others if node.health.role == "primary" and node.ready and not node.health.stranger
        ]
        if len(promoted) == 1:
            return promoted[0]
        return configured[0] if configured else None
