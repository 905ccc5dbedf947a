"""Reports: what operators see of nodes: ``check``, and gauges.

Knows: nodes, shards, counters.
Must not know: who prints or scrapes them.

A metric names a node by its shard and number (``shard="0", node="replica-1"``), never by its address: metrics travel
further than the log and ``check``, which do name addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gateway.clock import Clock
from gateway.counters import Counters, Samples
from gateway.replicas.allowance import Allowance, Lane
from gateway.replicas.choice import State, state_of, trouble_of
from gateway.replicas.limits import Limits
from gateway.replicas.node import Node
from gateway.replicas.topology import Role, Shard, Topology


class NodeReport(NamedTuple):
    """One node as it is seen now. ``lag_s`` is None where nothing is known; ``trouble`` says why it is not up."""

    shard: int
    role: Role
    number: int
    address: str
    state: State
    lag_s: float | None
    link_up: bool
    version: str
    outstanding: int
    latency_s: float
    trouble: str = ""

    @property
    def label(self) -> str:
        """``primary``, ``replica-0`` …: how metrics name it."""
        return "primary" if self.role == "primary" else f"replica-{self.number}"


def reports(shards: Sequence[Shard], now: float, limits: Limits) -> list[NodeReport]:
    """Describe every node, shard by shard, the primary first."""
    return [_report(node, shard, number, now, limits) for number, shard in enumerate(shards) for node in shard.nodes]


def _report(node: Node, shard: Shard, shard_number: int, now: float, limits: Limits) -> NodeReport:
    is_primary, state = node is shard.primary, state_of(node, shard, now, limits)
    return NodeReport(
        shard=shard_number,
        role="primary" if is_primary else "replica",
        number=0 if is_primary else shard.replicas.index(node),
        address=str(node.address),
        state=state,
        lag_s=0.0 if is_primary and node.ready else node.health.lag_s(now),
        link_up=node.health.link_up,
        version=node.version,
        outstanding=node.outstanding,
        latency_s=node.latency_s,
        trouble=trouble_of(node, state, now),
    )


def declare(
    counters: Counters, topology: Topology, limits: Limits, clock: Clock, lanes: Mapping[Lane, Allowance]
) -> None:
    """Declare the gauges of nodes and allowances."""

    def each(value: Callable[[NodeReport], float | None]) -> Callable[[], Samples]:
        def read() -> Samples:
            seen = reports(topology.shards(), clock.monotonic(), limits)
            return {(str(one.shard), one.label): number for one in seen if (number := value(one)) is not None}

        return read

    def states() -> Samples:
        seen = reports(topology.shards(), clock.monotonic(), limits)
        return {(str(one.shard), one.label, one.state): 1.0 for one in seen}

    labels = ("shard", "node")
    counters.gauge(
        "gateway_redis_node_state",
        "1 for the state a node is in",
        states,
        labels=(*labels, "state"),
        over_workers="max",
    )
    counters.gauge(
        "gateway_redis_node_lag_seconds", "How far a node may be behind", each(lambda one: one.lag_s), labels=labels,
        over_workers="max",
    )  # fmt: skip
    counters.gauge(
        "gateway_redis_node_outstanding", "Replies still to come", each(lambda one: one.outstanding), labels=labels
    )
    counters.gauge(
        "gateway_redis_node_latency_seconds", "Moving average", each(lambda one: one.latency_s), labels=labels,
        over_workers="max",
    )  # fmt: skip
    counters.gauge(
        "gateway_redis_reads_outstanding", "Reads under way", lambda: dict(_outstanding(lanes)), labels=("lane",)
    )
    counters.gauge(
        "gateway_redis_reads_refused", "Reads refused because too many were under way, since the start",
        lambda: {(lane,): float(one.refused) for lane, one in lanes.items()}, labels=("lane",),
    )  # fmt: skip


def _outstanding(lanes: Mapping[Lane, Allowance]) -> Iterator[tuple[tuple[str], float]]:
    for lane, allowance in lanes.items():
        yield (lane,), float(allowance.outstanding)
