"""Nodes: opening with backoff, what a loss means, how many connections carry the load, letting go."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, cast

import pytest

from gateway.errors import Overloaded
from gateway.replicas import node as node_module
from gateway.replicas.connection import Connection
from gateway.replicas.failures import ConnectionLost, ErrorReply
from gateway.replicas.handshake import Greeting
from gateway.replicas.node import Node
from tests.fakes import FakeClock, settle
from tests.unit.replicas.stubs import LOGIN, Dialler, StubConnection, address, make_nodes, node_at


class Listener:
    def __init__(self) -> None:
        self.unreachables = self.changes = self.greetings = 0

    def greeted(self, node: Node, greeting: Greeting) -> None:
        assert not node.ready, "it is judged before its connection carries a read"
        self.greetings += 1

    def changed(self, node: Node) -> None:
        self.changes += 1

    def unreachable(self, node: Node) -> None:
        self.unreachables += 1


async def test_opening_is_tried_again_with_doubling_jittered_pauses_and_each_failure_is_told() -> None:
    clock, dialler, listener = FakeClock(), Dialler(), Listener()
    nodes = make_nodes(clock, dialler)
    nodes.listener = listener
    node = nodes.node(address(1), LOGIN)
    await settle()
    attempts = []
    for _ in range(8):
        attempts.append(dialler.attempts)
        await clock.elapse(1.0)
    assert attempts[0] == 1
    assert 4 <= attempts[1] <= 6, "50, 100, 200, 400 ms, each shortened by up to a half"
    assert all(1 <= after - before <= 2 for before, after in pairwise(attempts[2:]))
    assert listener.unreachables == dialler.attempts
    assert (node.trouble, node.opening) == ("Connection refused", False)
    dialler.refuse = None
    await clock.elapse(1.0)
    assert len(node.ready) == 1
    assert (listener.greetings, node.trouble, node.version) == (1, "", "7.0.15")
    await nodes.close()


async def test_a_node_whose_announced_name_is_malformed_is_one_that_cannot_be_reached() -> None:
    clock, dialler, listener = FakeClock(), Dialler(), Listener()
    dialler.refuse = UnicodeEncodeError("idna", "a..b", 0, 1, "label empty or too long")
    nodes = make_nodes(clock, dialler)
    nodes.listener = listener
    node = nodes.node(address(1), LOGIN)
    await clock.elapse(1.0)
    assert dialler.attempts >= 3
    assert listener.unreachables == dialler.attempts
    assert node.trouble == "UnicodeEncodeError"
    await nodes.close()


async def test_attempts_that_run_out_of_time_have_used_up_their_pause() -> None:
    clock = FakeClock()

    class Silent(Dialler):
        async def __call__(self, *args: object, within_s: float, **more: object) -> Any:
            self.attempts += 1
            await clock.sleep(within_s)
            raise TimeoutError

    dialler = Silent()
    nodes = make_nodes(clock, dialler)
    nodes.node(address(1), LOGIN)
    await clock.elapse(20.5)
    assert dialler.attempts == 1 + 20 / nodes.open_timeout_s, (
        "a node that is back is found after one more, and no pause"
    )
    await nodes.close()


async def test_what_becomes_of_a_node_is_told_in_the_name_of_no_request() -> None:
    request: ContextVar[str] = ContextVar("request", default="nobody's")
    told: list[str] = []

    class Told(Listener):
        def unreachable(self, node: Node) -> None:
            told.append(request.get())

    nodes = make_nodes()
    nodes.listener = Told()
    request.set("the one that found no connection")
    nodes.node(address(1), LOGIN)
    await settle()
    assert told == ["nobody's"]
    await nodes.close()


async def test_why_a_node_cannot_be_reached_is_said_without_any_text_of_its_own() -> None:
    for error, reason in (
        (ErrorReply("WRONGPASS invalid username-password pair secret"), "WRONGPASS"),
        (TimeoutError(), "timed out"),
        (ConnectionLost(), "closed by the node"),
        (OSError(), "OSError"),
    ):
        dialler = Dialler()
        dialler.refuse = error
        nodes = make_nodes(connect=dialler)
        node = nodes.node(address(1), LOGIN)
        await settle()
        assert node.trouble == reason
        await nodes.close()


async def test_a_lost_connection_is_opened_again_at_once() -> None:
    dialler = Dialler()
    dialler.refuse = None
    nodes = make_nodes(connect=dialler)
    node = nodes.node(address(1), LOGIN)
    await settle()
    epoch = nodes.epoch
    node.connection_lost(node.ready[0])
    assert nodes.epoch > epoch, "earlier choices are void"
    with pytest.raises(ConnectionLost):
        node.connection()
    await settle()
    assert dialler.attempts == 2
    assert len(node.ready) == 1
    await nodes.close()


async def test_a_node_that_accepts_and_hangs_up_is_not_opened_in_a_storm() -> None:
    clock, dialler = FakeClock(), Dialler()
    dialler.refuse = None
    nodes = make_nodes(clock, dialler)
    node = nodes.node(address(1), LOGIN)
    await settle()
    for _ in range(50):
        if node.ready:
            node.connection_lost(node.ready[0])
        await clock.elapse(0.1)
    assert dialler.attempts < 20
    await clock.elapse(2.0)
    node.connection_lost(node.ready[0])
    await settle()
    assert node.ready, "once it has lived for a while it is opened at once again"
    await nodes.close()


async def test_reads_share_one_connection_until_it_is_busy_then_another_joins() -> None:
    dialler = Dialler()
    dialler.refuse = None
    nodes = make_nodes(connect=dialler)
    node = nodes.node(address(1), LOGIN)
    await settle()
    first = node.connection()
    dialler.opened[0].wait(node_module.BUSY)
    assert node.connection() is first, "there is no other yet"
    await settle()
    assert node.connection() is not first
    assert len(node.ready) == 2
    await nodes.close()


async def test_a_node_with_too_much_waiting_refuses_at_once() -> None:
    nodes = make_nodes()
    node = node_at(nodes, 1)
    StubConnection.of(node).wait(node_module.FULL)
    with pytest.raises(Overloaded):
        node.connection()
    await node.close()


async def test_silence_opens_the_breaker_and_an_answer_in_time_closes_it() -> None:
    nodes = make_nodes()
    node = node_at(nodes, 1)
    connection = node.ready[0]
    for _ in range(3):
        node.connection_overdue(connection)
    assert node.breaker.state(0.0) == "open"
    node.connection_answers(0.001)
    assert node.breaker.state(0.0) == "closed"
    node.connection_overdue(cast("Connection", StubConnection()))
    assert node.breaker.failures == 0, "a connection that is no longer ours says nothing"


async def test_the_same_address_and_login_are_the_same_node_until_it_is_let_go() -> None:
    nodes = make_nodes()
    one, other = nodes.node(address(1), LOGIN), nodes.node(address(2), LOGIN)
    assert nodes.node(address(1), LOGIN) is one
    nodes.retain([other])
    assert nodes.all() == (other,)
    assert nodes.node(address(1), LOGIN) is not one
    await nodes.close()


async def test_a_node_that_is_let_go_finishes_what_is_in_flight() -> None:
    clock, dialler = FakeClock(), Dialler()
    dialler.refuse = None
    nodes = make_nodes(clock, dialler)
    nodes.node(address(1), LOGIN)
    await settle()
    stub = dialler.opened[0]
    stub.wait(1)
    nodes.retain([])
    closed = []
    await clock.elapse(0.5)
    closed.append(stub.closed)
    stub.pending.clear()
    await clock.elapse(0.1)
    closed.append(stub.closed)
    assert closed == [False, True]
    await nodes.close()


async def test_a_connection_that_goes_during_its_introduction_counts_as_a_failure() -> None:
    clock, dialler = FakeClock(), Dialler()
    dialler.refuse = None
    nodes = make_nodes(clock, dialler)

    class Closes(Listener):
        def greeted(self, node: Node, greeting: Greeting) -> None:
            dialler.opened[-1].closed = True

    nodes.listener = Closes()
    node = nodes.node(address(1), LOGIN)
    await settle()
    assert not node.ready
    assert node.failed_opens == 1
    await nodes.close()


async def test_who_waits_for_a_node_is_woken_by_any_change_and_by_time() -> None:
    nodes = make_nodes()
    waiting = asyncio.ensure_future(nodes.wait_for_change(5.0))
    await settle()
    nodes.change(node_at(nodes, 1))
    await asyncio.wait_for(waiting, 30)
    await nodes.wait_for_change(0.0)
    assert not nodes._waiters
