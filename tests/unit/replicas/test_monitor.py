"""The health monitor on a fake clock: what it asks, in which order, what it says, whom it wakes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.replicas.commands import INFO_REPLICATION, PING
from gateway.replicas.failures import AttemptTimeout, ErrorReply
from gateway.replicas.handshake import Greeting
from gateway.replicas.health import replication_of
from gateway.replicas.limits import Limits
from gateway.replicas.monitor import Monitor
from gateway.replicas.node import Node
from gateway.replicas.topology import Redirect, Role, Shard
from tests.fakes import FakeClock, settle
from tests.unit.replicas.stubs import Dialler, StubConnection, make_nodes, node_at


def info_of_primary(offset: int) -> bytes:
    return b"role:master\r\nmaster_replid:aaa\r\nmaster_repl_offset:%d\r\n" % offset


def info_of_replica(offset: int, link: bytes = b"up") -> bytes:
    return b"role:slave\r\nmaster_replid:aaa\r\nmaster_link_status:%b\r\nslave_repl_offset:%d\r\n" % (link, offset)


class StubTopology:
    def __init__(self) -> None:
        self.shard: Shard = Shard(None, (), expects_replicas=True, answered_at=0.0)
        self.contradictions: list[tuple[Node, Role]] = []
        self.troubles: list[Node] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def for_key(self, key: bytes) -> Shard:
        return self.shard

    def shards(self) -> Sequence[Shard]:
        return (self.shard,)

    def redirected(self, redirect: Redirect) -> Node | None:
        return None

    def contradicted(self, node: Node, role: Role) -> None:
        self.contradictions.append((node, role))

    def troubled(self, node: Node) -> None:
        self.troubles.append(node)


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.nodes = make_nodes(self.clock, Dialler())
        self.primary, self.replica = node_at(self.nodes, 0), node_at(self.nodes, 1)
        self.topology = StubTopology()
        self.topology.shard = Shard(
            self.primary, (self.replica,), expects_replicas=True, answered_at=self.clock.monotonic()
        )
        self.monitor = Monitor(self.topology, self.nodes, Limits(), clock=self.clock)

    def answer(self, node: Node, *answers: object) -> None:
        StubConnection.of(node).answers += answers

    async def look(self) -> None:
        await self.clock.elapse(0.5)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, info_of_replica(100), b"PONG")
    await rig.monitor.start()
    yield rig
    await rig.monitor.stop()


async def test_the_primary_is_sampled_first_and_a_replica_that_has_it_all_is_in_step(rig: Rig) -> None:
    assert StubConnection.of(rig.primary).requests == [INFO_REPLICATION, PING]
    assert rig.replica.health.in_step_at == rig.clock.now
    assert rig.topology.shard.answered_at == rig.clock.now


async def test_lag_is_measured_every_quarter_of_its_limit(rig: Rig) -> None:
    rig.answer(rig.primary, info_of_primary(200), b"PONG")
    rig.answer(rig.replica, info_of_replica(150), b"PONG")
    first = rig.clock.now
    await rig.look()
    assert rig.replica.health.in_step_at == first, "it has the first sample, and not yet the second"
    assert rig.topology.shard.answered_at == first + 0.5


async def test_each_change_of_state_is_one_line(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for link in (b"up", b"down", b"down", *[b"up"] * 5):
        rig.answer(rig.primary, info_of_primary(100), b"PONG")
        rig.answer(rig.replica, info_of_replica(100, link), b"PONG")
        await rig.look()
    assert [record.getMessage() for record in caplog.records] == [
        "replica 10.0.0.1:6379 is link_down (lag 0.0 s)",
        "replica 10.0.0.1:6379 is up (lag 0.0 s)",
    ]


async def test_a_node_that_comes_and_goes_is_one_line_and_not_a_stream(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(20):
        rig.answer(rig.primary, info_of_primary(100), b"PONG")
        rig.answer(rig.replica, info_of_replica(100, b"down" if number % 2 else b"up"), b"PONG")
        await rig.look()
    assert [record.getMessage() for record in caplog.records] == ["replica 10.0.0.1:6379 is link_down (lag 0.0 s)"]


@pytest.mark.parametrize("code", ["CLUSTERDOWN", "NOPERM"])
async def test_a_ping_does_not_end_a_rest_that_ping_says_nothing_of(rig: Rig, code: str) -> None:
    rig.replica.health.rest(rig.clock.now + 1.0, code)
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, info_of_replica(100), b"PONG")
    await rig.look()
    assert rig.replica.health.resting_until == rig.clock.now + 0.5


async def test_an_info_that_says_nothing_of_replication_changes_nothing_and_breaks_nothing(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    in_step_at = rig.replica.health.in_step_at
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, b"", b"PONG")
    await rig.look()
    assert rig.replica.health.in_step_at == in_step_at
    assert not caplog.records, "no traceback of a task either"


async def test_a_second_primary_is_nobodys_measure_and_a_stranger_unless_it_continues_our_stream(rig: Rig) -> None:
    foreign = b"role:master\r\nmaster_replid:zzz\r\nmaster_repl_offset:1\r\n"
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, foreign, b"PONG")
    await rig.look()
    assert rig.replica.health.stranger
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    follower = b"role:slave\r\nmaster_replid:zzz\r\nmaster_link_status:up\r\nslave_repl_offset:5\r\n"
    rig.answer(rig.replica, follower, b"PONG")
    await rig.look()
    assert rig.replica.health.known_at is None, "it follows a stream that is not ours"
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    detached = b"master_replid2:aaa\r\nsecond_repl_offset:100\r\n"
    rig.answer(rig.replica, foreign + detached, b"PONG")
    await rig.look()
    assert not rig.replica.health.stranger, "somebody detached it, perhaps to make it the primary"


async def test_a_ping_that_is_refused_is_a_rest_and_one_that_is_answered_ends_it(rig: Rig) -> None:
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, info_of_replica(100), ErrorReply("LOADING Redis is loading the dataset in memory"))
    epoch = rig.nodes.epoch
    await rig.look()
    assert rig.replica.health.resting_until > rig.clock.now
    assert rig.nodes.epoch > epoch
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    rig.answer(rig.replica, info_of_replica(100), b"PONG")
    await rig.look()
    assert rig.replica.health.resting_until <= rig.clock.now


async def test_a_node_that_says_it_has_another_role_is_told_to_the_topology(rig: Rig) -> None:
    rig.answer(rig.primary, info_of_replica(100), b"PONG")
    rig.answer(rig.replica, info_of_primary(100), b"PONG")
    answered_at = rig.topology.shard.answered_at
    await rig.look()
    assert rig.topology.contradictions == [(rig.primary, "replica"), (rig.replica, "primary")]
    assert rig.topology.shard.answered_at == answered_at, "no primary answered"


async def test_an_open_breaker_is_probed_once_its_hold_is_over_and_an_answer_closes_it(rig: Rig) -> None:
    for _ in range(3):
        rig.replica.failed()
    stub = StubConnection.of(rig.replica)
    asked = len(stub.requests)
    rig.replica.breaker.held_until = rig.clock.now + 0.6
    rig.answer(rig.primary, *[info_of_primary(100), b"PONG"] * 2)
    await rig.look()
    assert len(stub.requests) == asked, "left alone"
    rig.answer(rig.replica, info_of_replica(100), b"PONG")
    await rig.look()
    assert rig.replica.breaker.state(rig.clock.now) == "closed"


async def test_a_probe_that_is_not_answered_leaves_the_breaker_open(rig: Rig) -> None:
    for _ in range(3):
        rig.replica.failed()
    rig.answer(rig.replica, AttemptTimeout(), AttemptTimeout())
    await rig.look()
    assert rig.replica.breaker.opened


async def test_a_silent_primary_holds_up_nobody(rig: Rig) -> None:
    rig.answer(rig.replica, info_of_replica(100), b"PONG")
    asked = len(StubConnection.of(rig.replica).requests)
    await rig.clock.elapse(0.5 + 0.25)
    assert len(StubConnection.of(rig.replica).requests) > asked


async def test_what_a_node_says_on_a_new_connection_is_judged_before_it_is_read(rig: Rig) -> None:
    said = replication_of(info_of_replica(1, b"down").replace(b"aaa", b"fresh"))
    rig.monitor.greeted(rig.replica, Greeting(said, rig.clock.now, "7.0.15", None))
    assert rig.replica.health.known_at is None, "restarted empty"
    rig.monitor.greeted(rig.replica, Greeting(None, rig.clock.now, "7.0.15", "LOADING"))
    assert rig.replica.health.resting_for == "LOADING"


async def test_a_refused_introduction_is_said(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.monitor.greeted(rig.replica, Greeting(None, rig.clock.now, "7.0.15", "NOPERM"))
    assert "NOPERM" in caplog.records[0].getMessage()


async def test_a_node_that_cannot_be_reached_is_told_to_the_topology_and_why_to_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.monitor.unreachable(rig.replica)
    assert rig.topology.troubles == [rig.replica]
    rig.replica.trouble = "Connection refused"
    rig.replica.ready.clear()
    rig.monitor.changed(rig.replica)
    assert caplog.records[-1].getMessage() == "replica 10.0.0.1:6379 is down (Connection refused)"


async def test_nodes_that_are_gone_are_forgotten(rig: Rig) -> None:
    rig.topology.shard = rig.topology.shard.followed_by(rig.primary, ())
    rig.answer(rig.primary, info_of_primary(100), b"PONG")
    await rig.look()
    await settle()
    assert list(rig.monitor._states) == [rig.primary]
