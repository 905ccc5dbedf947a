"""Nodes without sockets: connections that answer from a list, and opening that never succeeds by itself.

Knows: the classes that hold connections.
Must not know: any server.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from gateway.replicas.commands import Script
from gateway.replicas.connection import Answer, Connection
from gateway.replicas.handshake import Greeting
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Node, Nodes
from tests.fakes import FakeClock

LOGIN = Login()


class StubConnection:
    """Answers each request with the next of ``answers``: a reply, an exception to raise, or None for never."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[bytes] = []
        self.deadlines: list[float] = []
        self.unanswered: list[Answer] = []
        self.pending: deque[tuple[Answer, float]] = deque()
        self.closed = False

    @staticmethod
    def of(node: Node) -> StubConnection:
        """Return a node's first connection."""
        return cast("StubConnection", node.ready[0])

    def wait(self, count: int) -> None:
        """Have this many replies outstanding."""
        loop = asyncio.get_running_loop()
        self.pending.extend((loop.create_future(), 0.0) for _ in range(count))

    def send(self, request: bytes, now: float, deadline: float) -> Answer:
        """Keep the request and answer it."""
        del now
        self.requests.append(request)
        self.deadlines.append(deadline)
        future = asyncio.get_running_loop().create_future()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        else:
            self.unanswered.append(future)
        return future

    def send_behind(self, before: tuple[bytes, ...], request: bytes, now: float, deadline: float) -> Answer:
        """Keep what goes before, too."""
        self.requests += before
        return self.send(request, now, deadline)

    def abort(self) -> None:
        """Close."""
        self.closed = True


class Dialler:
    """Opens nothing until told: ``refuse`` is raised for every attempt; ``greeting`` is what a success says."""

    def __init__(self) -> None:
        self.attempts = 0
        self.refuse: BaseException | None = ConnectionRefusedError(111, "Connection refused")
        self.greeting = Greeting(None, 0.0, "7.0.15", None)
        self.opened: list[StubConnection] = []
        self.answers: list[Any] = []
        """What every connection opened from now on answers."""

    async def __call__(
        self,
        make: Callable[[], Connection],
        address: Address,
        login: Login,
        scripts: Sequence[Script],
        monotonic: Callable[[], float],
        *,
        within_s: float,
    ) -> tuple[Connection, Greeting]:
        """Open, or refuse to."""
        del make, address, login, scripts, monotonic, within_s
        self.attempts += 1
        if self.refuse is not None:
            raise self.refuse
        self.opened.append(StubConnection())
        self.opened[-1].answers += self.answers
        return cast("Connection", self.opened[-1]), self.greeting


def make_nodes(clock: FakeClock | None = None, connect: Dialler | None = None) -> Nodes:
    """Return an empty registry on a fake clock."""
    return Nodes(
        clock=clock or FakeClock(),
        random=random.Random(1),
        scripts=(),
        read_timeout_s=0.2,
        connect=connect or Dialler(),
    )


def address(number: int) -> Address:
    """Return the address of node number so and so."""
    return Address(f"10.0.0.{number}", 6379)


def node_at(nodes: Nodes, number: int) -> Node:
    """Return a node that is connected already, through a stub; it does not open any by itself."""
    node = Node(nodes, address(number), LOGIN)
    node.ready.append(cast("Connection", StubConnection()))
    return node
