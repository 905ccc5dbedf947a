"""Choice: which nodes of a shard may be read now, and which of those is.

Knows: shards, health, load and latency.
Must not know: sockets, tasks, budgets of time, what is read.

Three classes, best first:

1. replicas in step: connected, link up, not resting, breaker closed, lag proven to be within the limit
2. the primary: its own, for boards that must be exact; else only as a fallback, which the caller limits
3. replicas behind: connected, and once in step at a known moment, though beyond the limit by now or without their
   link; not once no primary has answered for ``failover_stale_s``. What they answer is marked stale
"""

from __future__ import annotations

import random as random_module
from collections.abc import Sequence
from typing import Literal

from gateway.replicas.limits import Limits
from gateway.replicas.node import Node
from gateway.replicas.topology import Shard

KEPT_S = 1.0
"""The longest that candidates are kept, so that a node whose lag shrank without any event comes back."""

State = Literal["up", "down", "loading", "resting", "broken", "link_down", "lagging", "unproven", "wrong_role"]
"""``unproven``: nothing shows that it was ever in step. ``broken``: its breaker is open. The rest says what it says."""


def answers(node: Node, now: float) -> bool:
    """Whether the node can be asked at all: connected, not resting, breaker closed."""
    return bool(node.ready) and now >= node.health.resting_until and not node.breaker.opened


def is_in_step(node: Node, now: float, max_lag_s: float) -> bool:
    """Whether this replica is fit to be read without a mark."""
    health = node.health
    at = health.in_step_at
    return (
        at is not None and now - at <= max_lag_s and health.link_up and health.role == "replica" and answers(node, now)
    )


def is_behind(node: Node, now: float) -> bool:
    """Whether this replica can be read with the stale mark."""
    return node.health.role == "replica" and node.health.known_at is not None and answers(node, now)


def is_promoted(node: Node, now: float) -> bool:
    """Whether this node was promoted under our eyes, with all that it was known to hold."""
    return node.health.role == "primary" and node.health.promoted_at is not None and answers(node, now)


def candidates(shard: Shard, now: float, limits: Limits, epoch: int) -> tuple[Node, ...]:
    """Return the nodes of the best class that needs neither mark nor limit, and keep them on the shard.

    They are the replicas in step; the primary where no replica was ever meant to be; none if neither is fit. What is
    kept stays right until ``shard.until`` as long as no node changes (``epoch``).
    """
    if shard.expects_replicas:
        fit = tuple(node for node in shard.replicas if is_in_step(node, now, limits.max_lag_s))
    else:
        fit = () if (owner := owner_of(shard, now)) is None else (owner,)
    until = now + KEPT_S
    for node in shard.nodes:
        if node in fit and node.health.in_step_at is not None and shard.expects_replicas:
            until = min(until, node.health.in_step_at + limits.max_lag_s)
        elif node.health.resting_until > now:
            until = min(until, node.health.resting_until)
    shard.candidates, shard.epoch, shard.until = fit, epoch, until
    return fit


def owner_of(shard: Shard, now: float) -> Node | None:
    """Return the primary if it can be asked and still says that it is one."""
    primary = shard.primary
    if primary is None or primary.health.role == "replica" or not answers(primary, now):
        return None
    return primary


def behind(shard: Shard, now: float, limits: Limits) -> list[Node]:
    """Return the replicas that may be read with the stale mark.

    One that is being promoted is among them, on both sides of the moment: the topology may know before the node is
    heard to say so, and a node may say so before the topology knows. In the second case it is read only while no
    primary is left: a replica that somebody detached beside a living primary goes a way of its own.
    """
    if now - shard.answered_at > max(limits.failover_stale_s, limits.silence_s):
        return []
    found = [node for node in shard.nodes if is_behind(node, now)]
    return found or [node for node in shard.replicas if is_promoted(node, now) and owner_of(shard, now) is None]


def better(nodes: Sequence[Node], random: random_module.Random) -> Node:
    """Return one node: of two taken at random, the one with less waiting × latency.

    Two random choices keep the longest queue short without everyone rushing to the same best node.
    """
    count = len(nodes)
    if count == 1:
        return nodes[0]
    if count == 2:
        one, other = nodes
    else:
        first = int(random.random() * count)
        one, other = nodes[first], nodes[first - 1 - int(random.random() * (count - 1))]
    if (one.outstanding + 1) * one.latency_s <= (other.outstanding + 1) * other.latency_s:
        return one
    return other


def state_of(node: Node, shard: Shard, now: float, limits: Limits) -> State:
    """Return the one word that says most about a node's fitness."""
    health = node.health
    if not node.ready:
        return "down"
    if now < health.resting_until:
        return "loading" if health.resting_for == "LOADING" else "resting"
    if node.breaker.opened:
        return "broken"
    is_primary = node is shard.primary
    if health.role not in (None, "primary" if is_primary else "replica"):
        return "wrong_role"
    return "up" if is_primary else _state_of_replica(node, now, limits)


def trouble_of(node: Node, state: State, now: float) -> str:
    """Return why a node is in a state, where it said so itself or the system did; else nothing."""
    if state == "down":
        return node.trouble
    if now < node.health.resting_until:
        return node.health.resting_for
    if state == "wrong_role":
        return f"it says that it is a {node.health.role}"
    if state != "unproven":
        return ""
    return "it follows another primary" if node.health.stranger else "" if node.health.said else "it says no role"


def _state_of_replica(node: Node, now: float, limits: Limits) -> State:
    health = node.health
    if health.known_at is None:
        return "unproven"
    if not health.link_up:
        return "link_down"
    return "up" if is_in_step(node, now, limits.max_lag_s) else "lagging"
