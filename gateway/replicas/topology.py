"""Topology: the seam between where a key's nodes are learnt and how they are read.

Knows: shards, which hold a primary and its replicas, and what reads report back about them.
Must not know: how nodes are found (a module each: ``fixed``, ``sentinel``, ``cluster``), how one is chosen, commands.

How a topology is written
-------------------------
A topology turns discovery into ``Shard`` values and nothing else; it never sends a read and never judges health.

1. It gets ``Nodes`` (``nodes.py``) in its constructor and asks it for every node: ``nodes.node(address, login)`` gives
   the **same** ``Node`` for the same address and login for as long as it is kept, so that connections, latency, lag
   and breaker survive a refresh. After a refresh it calls ``nodes.retain(every node of every shard)``: nodes
   that are gone finish what is in flight and close.
2. ``Login`` says how a connection is opened: account, database, TLS, and ``readonly`` (a cluster's nodes all get it:
   ``READONLY`` then goes out on every connection that is opened or re-opened; a primary ignores it).
3. Shards are replaced, not changed: ``shard.followed_by(primary, replicas)`` keeps what is known of the outage
   clock. Whoever holds the old one may go on with it; ``for_key`` gives the new one. A shard without
   nodes is legal: reads of it fail as "origin unavailable". A primary is never also among the replicas.
4. ``start`` returns at once (or after one quick attempt) even if nothing answers, and never raises for it: discovery
   goes on behind, with backoff, for ever, from the configured seeds, never only from addresses learnt since.
5. ``for_key`` is on the hot path: no await, no allocation where it can be helped. (A cluster: slot → shard in a
   list of 16,384; the slot of a key with a hash tag as in the cluster specification, kept in a bounded dict.)
6. The reports below are calls from the event loop, cheap, and may come in floods: wake a refresh task, at most one
   refresh in flight, a minimum pause between two.

What each shape makes of the reports:

========== ============================== ============================== =================================
report     fixed                          Sentinel                       Cluster
========== ============================== ============================== =================================
redirected None: there is nothing to      None                           MOVED: correct that slot's shard
           redirect to                                                   at once, refresh behind it, give
                                                                         the node; ASK: give the node only
contradicted  a replica that says it is    ask the Sentinels              refresh the slot map
           primary takes over while the
           configured primary does not
troubled   resolve names again            ask the Sentinels              refresh the slot map
========== ============================== ============================== =================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from gateway.replicas.login import Address

if TYPE_CHECKING:
    from gateway.replicas.node import Node

Role = Literal["primary", "replica"]


class Redirect(NamedTuple):
    """What ``-MOVED slot host:port`` or ``-ASK slot host:port`` said.

    ``address.host`` is never empty: a server that leaves it out means the host it was asked at, filled in here.
    """

    kind: Literal["MOVED", "ASK"]
    slot: int
    address: Address


class Shard:
    """Who holds a range of keys: one primary and its replicas, as last learnt.

    ``expects_replicas`` is False only where no replica is configured (fixed) or none was ever seen (Sentinel, Cluster):
    the primary is then read without limit, since nothing else was ever meant to be.
    ``answered_at`` (monotonic) is when a primary of this shard last answered, or when the shard was first known; the
    health monitor moves it on, and ``failover_stale_s`` counts from it. ``known``: whether one has answered at all.
    """

    __slots__ = ("answered_at", "candidates", "epoch", "expects_replicas", "known", "primary", "replicas", "until")

    def __init__(
        self, primary: Node | None, replicas: Sequence[Node], *, expects_replicas: bool, answered_at: float
    ) -> None:
        self.primary = primary
        self.replicas = tuple(replicas)
        self.expects_replicas = expects_replicas
        self.answered_at = answered_at
        self.known = False
        # The last choice of candidates, kept by ``choice``: good while no node changed state, until a moment.
        self.candidates: tuple[Node, ...] = ()
        self.epoch = -1
        self.until = 0.0

    def followed_by(
        self, primary: Node | None, replicas: Sequence[Node], *, expects_replicas: bool | None = None
    ) -> Shard:
        """Return this shard with other nodes; the outage clock runs on."""
        expects = self.expects_replicas if expects_replicas is None else expects_replicas
        shard = Shard(primary, replicas, expects_replicas=expects, answered_at=self.answered_at)
        shard.known = self.known
        return shard

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, the primary first."""
        return self.replicas if self.primary is None else (self.primary, *self.replicas)


class Topology(Protocol):
    """Where keys live. One module a shape; the rules are in this module's docstring."""

    async def start(self) -> None:
        """Begin discovery; return at once even if nothing answers."""
        ...

    async def stop(self) -> None:
        """End discovery and its connections. Nodes are closed by whoever made ``Nodes``."""
        ...

    def for_key(self, key: bytes) -> Shard:
        """Return the shard that holds a key now."""
        ...

    def shards(self) -> Sequence[Shard]:
        """Return every shard once, in a stable order: reports and metrics number nodes by it."""
        ...

    def redirected(self, redirect: Redirect) -> Node | None:
        """Learn from a redirect; return the node to ask at once (after ``ASKING`` for an ASK), or None."""
        ...

    def contradicted(self, node: Node, role: Role) -> None:
        """Learn that a node says it has another role than its shard thinks."""
        ...

    def troubled(self, node: Node) -> None:
        """Learn that a node cannot be connected to, or said that its cluster is down."""
        ...
