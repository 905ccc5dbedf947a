"""Which nodes may be read: in step first, the primary as a fallback, those behind with the mark, and no other."""

from __future__ import annotations

import random

import pytest

from gateway.replicas import choice
from gateway.replicas.limits import Limits
from gateway.replicas.node import Node, Nodes
from gateway.replicas.topology import Role, Shard
from tests.unit.replicas.stubs import StubConnection, make_nodes, node_at

LIMITS = Limits()
NOW = 1000.0


@pytest.fixture
def nodes() -> Nodes:
    return make_nodes()


def made(nodes: Nodes, number: int, role: Role = "replica", in_step_at: float | None = NOW - 0.1) -> Node:
    node = node_at(nodes, number)
    node.health.role, node.health.link_up, node.health.in_step_at = role, True, in_step_at
    return node


def shard_of(nodes: Nodes, replicas: int = 2) -> Shard:
    followers = [made(nodes, number) for number in range(1, replicas + 1)]
    return Shard(made(nodes, 0, "primary"), followers, expects_replicas=bool(replicas), answered_at=NOW)


def fit(shard: Shard, now: float = NOW) -> tuple[Node, ...]:
    return choice.candidates(shard, now, LIMITS, epoch=1)


async def test_replicas_in_step_are_candidates_and_the_primary_is_not(nodes: Nodes) -> None:
    shard = shard_of(nodes)
    assert fit(shard) == shard.replicas


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ("gone", "down"),
        ("loading", "loading"),
        ("resting", "resting"),
        ("breaker", "broken"),
        ("link", "link_down"),
        ("lag", "lagging"),
        ("unproven", "unproven"),
        ("promoted", "wrong_role"),
    ],
)
async def test_a_replica_with_any_fault_is_left_out_and_its_state_names_the_fault(
    nodes: Nodes, fault: str, state: str
) -> None:
    shard = shard_of(nodes)
    node, health = shard.replicas[0], shard.replicas[0].health
    match fault:
        case "gone":
            node.ready.clear()
        case "loading":
            health.rest(NOW + 1, "LOADING")
        case "resting":
            health.rest(NOW + 1, "MASTERDOWN")
        case "breaker":
            node.breaker.opened = True
        case "link":
            health.link_up = False
        case "lag":
            health.in_step_at = NOW - LIMITS.max_lag_s - 0.01
        case "unproven":
            health.in_step_at = None
        case _:
            health.role = "primary"
    assert fit(shard) == shard.replicas[1:]
    assert choice.state_of(node, shard, NOW, LIMITS) == state
    assert choice.state_of(shard.replicas[1], shard, NOW, LIMITS) == "up"


async def test_what_is_kept_ends_when_a_candidates_lag_could_exceed_the_limit(nodes: Nodes) -> None:
    shard = shard_of(nodes)
    shard.replicas[0].health.in_step_at = NOW - 1.5
    fit(shard)
    assert shard.until == pytest.approx(NOW + 0.5)
    assert fit(shard, NOW + 0.6) == shard.replicas[1:]


async def test_what_is_kept_ends_when_a_resting_node_may_come_back(nodes: Nodes) -> None:
    shard = shard_of(nodes)
    shard.replicas[0].health.rest(NOW + 0.3, "LOADING")
    fit(shard)
    assert shard.until == pytest.approx(NOW + 0.3)


async def test_where_no_replica_is_configured_the_primary_is_read(nodes: Nodes) -> None:
    shard = shard_of(nodes, replicas=0)
    assert fit(shard) == (shard.primary,)
    assert shard.primary is not None
    shard.primary.health.rest(NOW + 1, "LOADING")
    assert fit(shard) == ()


async def test_a_primary_that_says_it_is_a_replica_is_nobodys_owner(nodes: Nodes) -> None:
    shard = shard_of(nodes)
    assert choice.owner_of(shard, NOW) is shard.primary
    assert shard.primary is not None
    shard.primary.health.role = "replica"
    assert choice.owner_of(shard, NOW) is None
    assert choice.owner_of(Shard(None, (), expects_replicas=False, answered_at=NOW), NOW) is None


async def test_replicas_once_in_step_may_be_read_with_the_mark_for_failover_stale_s(nodes: Nodes) -> None:
    shard = shard_of(nodes)
    for node in shard.replicas:
        node.health.link_up = False
    shard.replicas[1].health.in_step_at = None
    assert fit(shard) == ()
    assert choice.behind(shard, NOW + 59, LIMITS) == [shard.replicas[0]]
    assert choice.behind(shard, NOW + 61, LIMITS) == []


async def test_a_node_promoted_but_not_yet_heard_to_say_so_is_still_read_with_the_mark(nodes: Nodes) -> None:
    promoted = made(nodes, 1)
    shard = Shard(promoted, (), expects_replicas=True, answered_at=NOW)
    assert choice.owner_of(shard, NOW) is None
    assert choice.behind(shard, NOW, LIMITS) == [promoted]
    promoted.health.role = "primary"
    assert choice.behind(shard, NOW, LIMITS) == []


async def test_a_replica_that_was_promoted_is_read_with_the_mark_while_no_primary_is_left(nodes: Nodes) -> None:
    shard = shard_of(nodes, replicas=1)
    (promoted,) = shard.replicas
    promoted.health.role, promoted.health.promoted_at = "primary", NOW - 1
    assert choice.behind(shard, NOW, LIMITS) == [], "its primary lives: somebody detached it"
    assert shard.primary is not None
    shard.primary.breaker.opened = True
    assert choice.behind(shard, NOW, LIMITS) == [promoted]
    promoted.health.promoted_at = None
    assert choice.behind(shard, NOW, LIMITS) == [], "nothing shows that it held what the old primary did"


async def test_of_two_nodes_the_one_with_less_waiting_and_latency_is_taken(nodes: Nodes) -> None:
    quick, slow = made(nodes, 1), made(nodes, 2)
    quick.latency_s, slow.latency_s = 0.001, 0.004
    assert choice.better([slow, quick], random.Random(1)) is quick
    StubConnection.of(quick).wait(9)
    assert choice.better([slow, quick], random.Random(1)) is slow
    assert choice.better([slow], random.Random(1)) is slow


async def test_of_many_nodes_two_different_ones_are_compared_and_every_one_gets_its_turn(nodes: Nodes) -> None:
    several = [made(nodes, number) for number in range(5)]
    several[0].latency_s = 1.0
    numbers = random.Random(1)
    taken = [choice.better(several, numbers) for _ in range(500)]
    assert set(taken) == set(several[1:]), "the worst one loses against any other"
