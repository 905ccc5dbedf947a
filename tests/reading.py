"""Replica reads over real servers, as tests want them: any protocol, any limit, addresses behind proxies.

Knows: how replica reads are put together for fixed nodes.
Must not know: settings files, the gateway around them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gateway.clock import SystemClock
from gateway.counters import Counters
from gateway.layouts.scripts import SCRIPTS, scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.model import Board, Target
from gateway.replicas.fixed import FixedTopology
from gateway.replicas.limits import Limits
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Nodes
from gateway.replicas.reads import ReplicaReads

KEY = b"lb:s"
PATIENT: Mapping[str, float] = {"read_timeout_s": 3.0, "request_budget_s": 8.0, "max_lag_s": 20.0}
"""What ``reading`` reads with where a test says nothing else: a node, or the whole machine, may stand still for two
seconds, and it is no fault of the node's yet. A test is of what it did to the nodes, not of what the machine did."""


class Reading(NamedTuple):
    """Started reads, the origin over them, and what they count."""

    reads: ReplicaReads
    origin: SortedSetOrigin
    counters: Counters
    nodes: Nodes

    def count(self, name: str, *labels: str) -> int:
        """Return a counter's value, 0 if it was never added to."""
        return self.counters.counters[f"gateway_redis_{name}_total"].cells.get(labels, [0])[0]

    def states(self) -> list[str]:
        """Return the nodes' states, the primary first."""
        return [node.state for node in self.reads.nodes()]


@contextlib.asynccontextmanager
async def reading(
    primary: int,
    *replicas: int,
    protocol: Literal[2, 3] = 2,
    login: Login | None = None,
    preload: bool = True,
    **limits: Any,
) -> AsyncIterator[Reading]:
    """Read from nodes at loopback ports, the primary first; ``limits``: fields of ``Limits``, before ``PATIENT``."""
    clock, counters, numbers = SystemClock(), Counters(), Limits(**{**PATIENT, **limits})
    nodes = Nodes(
        clock=clock,
        random=random.Random(1),
        scripts=scripts_of(*SCRIPTS) if preload else (),
        read_timeout_s=numbers.read_timeout_s,
    )
    addresses = [Address("127.0.0.1", port) for port in (primary, *replicas)]
    topology = FixedTopology(nodes, addresses[0], addresses[1:], login or Login(protocol=protocol), clock=clock)
    reads = ReplicaReads(topology, nodes, numbers, clock=clock, counters=counters, random=random.Random(2))
    await reads.start()
    try:
        origin = SortedSetOrigin(reads, clock=clock, request_budget_s=numbers.request_budget_s)
        yield Reading(reads, origin, counters, nodes)
    finally:
        await reads.stop()


def target(key: bytes = KEY, *, profiles_key: bytes | None = None, **board: Any) -> Target:
    """Return a target of a board with these fields."""
    return Target(Board(name="s", key=key.decode(), **board), "s", key, profiles_key)


def pairs(scores: dict[bytes, float]) -> Sequence[bytes | float]:
    """Return the arguments of ZADD."""
    return [part for member, score in scores.items() for part in (score, member)]
