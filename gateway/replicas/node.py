"""Node: one Redis server and the few connections we keep to it.

Knows: opening and re-opening with backoff, which of its connections takes a read, latency, its breaker and health.
Must not know: what is read, other nodes, its shard.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random as random_module
from collections.abc import Iterable, Sequence
from typing import Protocol

from gateway.clock import Clock
from gateway.errors import Overloaded
from gateway.replicas.commands import Script
from gateway.replicas.connection import Answer, Connection
from gateway.replicas.failures import AttemptError, ConnectionLost
from gateway.replicas.handshake import Connect, Greeting, open_connection, reason_of
from gateway.replicas.health import Breaker, Health
from gateway.replicas.login import Address, Login
from gateway.replicas.waiting import wait_for_all

CONNECTIONS = 3
"""The most to one node. One carries all until it is busy: the more share a write, the cheaper each read."""
BUSY = 128
"""Reads waiting on one connection before another one is used, or opened."""
FULL = 4096
"""Replies outstanding at one node before it takes no more reads: more than all lanes together, so that only replies
that nobody waits for any more can fill it, when it is far too slow."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
SHORT_LIFE_S = 1.0
"""A connection lost sooner than this says that opening it again at once may be of no use."""


class Listener(Protocol):
    """Who is told what happens to nodes, beyond what they keep themselves."""

    def greeted(self, node: Node, greeting: Greeting) -> None:
        """Learn what the node said on a new connection, before that carries its first read."""
        ...

    def changed(self, node: Node) -> None:
        """Learn that the node came, went, or that its breaker opened or closed."""
        ...

    def unreachable(self, node: Node) -> None:
        """Learn that a connection could not be opened."""
        ...


class Node:
    """One server. ``ready`` lists the connections that carry reads; ``latency_s`` is a moving average."""

    __slots__ = (
        "_closing",
        "_nodes",
        "_opened_at",
        "_opener",
        "_short_lives",
        "address",
        "breaker",
        "failed_opens",
        "health",
        "latency_s",
        "login",
        "ready",
        "trouble",
        "version",
    )

    def __init__(self, nodes: Nodes, address: Address, login: Login) -> None:
        self._nodes = nodes
        self._opener: asyncio.Task[None] | None = None
        self._closing = False
        self._opened_at = 0.0
        self._short_lives = 0
        self.address, self.login = address, login
        self.ready: list[Connection] = []
        self.health = Health()
        self.breaker = Breaker()
        self.latency_s = 0.001
        self.failed_opens = 0
        self.trouble = ""
        self.version = ""

    def __repr__(self) -> str:
        return f"Node({self.address})"

    @property
    def outstanding(self) -> int:
        """How many replies are still to come, those of callers who left included."""
        ready = self.ready
        if len(ready) == 1:  # nearly always, and asked for with every choice
            return len(ready[0].pending)
        return sum(len(connection.pending) for connection in ready)

    @property
    def opening(self) -> bool:
        """Whether a connection is being opened that no failure speaks against yet."""
        return self._opener is not None and self.failed_opens == 0

    def connection(self) -> Connection:
        """Return the connection for the next read. Raises ConnectionLost if there is none, Overloaded if all are full.

        Reads crowd together on the first connection: a batch costs one system call. Others join when it is busy,
        which also gets reads past a connection that is stuck.
        """
        try:
            connection = self.ready[0]
        except IndexError:
            raise ConnectionLost from None
        if len(connection.pending) < BUSY:
            return connection
        return self._least_busy()

    def _least_busy(self) -> Connection:
        least = min(self.ready, key=lambda connection: len(connection.pending))
        if len(least.pending) >= BUSY and len(self.ready) < CONNECTIONS:
            self.open_soon()
        if self.outstanding >= FULL:
            raise Overloaded
        return least

    def send(self, request: bytes, now: float, deadline: float) -> Answer:
        """Send one read; see ``Connection.send`` and ``connection``."""
        return self.connection().send(request, now, deadline)

    # Opening

    def open_soon(self) -> None:
        """Open one more connection in the background, unless one is being opened or the node is closed."""
        if self._opener is None and not self._closing:
            # What becomes of a connection belongs to no request, not even in the log to the one that asked for it.
            self._opener = asyncio.get_running_loop().create_task(
                self._open(), name=f"open {self.address}", context=contextvars.Context()
            )

    async def _open(self) -> None:
        """Try until one connection is open; the pauses double, and are jittered so that workers spread out."""
        nodes = self._nodes
        spent_s = 0.0
        try:
            while not self._closing:
                if self.failed_opens:
                    pause_s = min(FIRST_PAUSE_S * 2 ** min(self.failed_opens - 1, 10), LONGEST_PAUSE_S)
                    # Less what the last attempt took: behind a cut line, where each waits for its time to run out,
                    # the node would else be found two seconds after its return instead of one.
                    await nodes.clock.sleep(pause_s * nodes.random.uniform(0.5, 1.0) - spent_s)
                began = nodes.clock.monotonic()
                if await self._open_once():
                    return
                spent_s = nodes.clock.monotonic() - began
        finally:
            self._opener = None

    async def _open_once(self) -> bool:
        nodes = self._nodes
        try:
            connection, greeting = await nodes.connect(
                lambda: nodes.new_connection(self),
                self.address,
                self.login,
                nodes.scripts,
                nodes.clock.monotonic,
                within_s=nodes.open_timeout_s,
            )
        except (OSError, UnicodeError, AttemptError) as error:  # TimeoutError is an OSError; a name can be malformed
            self.failed_opens += 1
            self.trouble = reason_of(error)
            nodes.listener.unreachable(self)
            nodes.wake()  # who waits for it need not wait any longer
            return False
        self.version = greeting.version or self.version
        self.trouble = ""
        nodes.listener.greeted(self, greeting)
        if connection.closed:  # it went while we were being introduced
            self.failed_opens += 1
            return False
        self.failed_opens = 0
        self._opened_at = nodes.clock.monotonic()
        self.breaker.answered()
        self.ready.append(connection)
        nodes.change(self)
        return True

    # connection.Watcher

    def connection_lost(self, connection: Connection) -> None:
        """Forget the connection, and open another if it was one of those that carried reads."""
        if connection not in self.ready:
            return  # lost during its handshake: the opener sees to it
        self.ready.remove(connection)
        if not self.ready:
            self.trouble = "connection lost"
        self._nodes.change(self)
        if not self.ready:
            # At once, so that reads can wait for it; but a node that accepts and hangs up again gets the usual pauses.
            lived_s = self._nodes.clock.monotonic() - self._opened_at
            self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
            self.failed_opens = max(0, self._short_lives - 1)
            self.open_soon()

    def connection_overdue(self, connection: Connection) -> None:
        """Count a failure: attempts ran out of time, and nothing was answered meanwhile."""
        if connection in self.ready and self.breaker.failed(self._nodes.clock.monotonic()):
            self._nodes.change(self)

    def connection_answers(self, latency_s: float) -> None:
        """Move the average; an answer in time closes a breaker that was half-open."""
        self.latency_s += (latency_s - self.latency_s) * 0.1
        if self.breaker.failures and self.breaker.answered():
            self._nodes.change(self)

    def failed(self) -> None:
        """Count a failure that only the reader could see."""
        if self.breaker.failed(self._nodes.clock.monotonic()):
            self._nodes.change(self)

    async def close(self, *, drain_s: float = 0.0) -> None:
        """Close every connection, after what is in flight has ended or ``drain_s`` have passed."""
        self._closing = True
        if self._opener is not None:
            self._opener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opener
        clock = self._nodes.clock
        until = clock.monotonic() + drain_s
        while self.outstanding and clock.monotonic() < until:
            await clock.sleep(0.01)
        for connection in list(self.ready):
            connection.abort()


class Nodes:
    """Every node there is a connection to, by address and login: what a topology asks for its nodes.

    ``epoch`` grows whenever any node changes so that choices made before must not be reused.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        random: random_module.Random,
        scripts: Sequence[Script],
        read_timeout_s: float,
        listener: Listener | None = None,
        connect: Connect = open_connection,
    ) -> None:
        """``listener`` is set by the health monitor, which nodes and topology have to exist for first."""
        self.connect = connect
        self.clock, self.random = clock, random
        self.scripts = scripts
        self.listener: Listener = listener or _Nobody()
        self.epoch = 0
        self.open_timeout_s = max(1.0, read_timeout_s)
        self._sweep_s = min(max(read_timeout_s / 8, 0.005), 0.025)
        self._silence_s = max(0.5, 2 * read_timeout_s)
        self._nodes: dict[tuple[Address, Login], Node] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._waiters: set[asyncio.Future[None]] = set()

    def node(self, address: Address, login: Login) -> Node:
        """Return the node at an address, the same one as before while it is retained; it begins to connect at once."""
        node = self._nodes.get((address, login))
        if node is None:
            node = self._nodes[address, login] = Node(self, address, login)
            node.open_soon()
        return node

    def retain(self, nodes: Iterable[Node]) -> None:
        """Let every other node go: it takes no new read from now on, finishes what is in flight, and closes."""
        kept = set(nodes)
        for key, node in list(self._nodes.items()):
            if node not in kept:
                del self._nodes[key]
                task = asyncio.get_running_loop().create_task(node.close(drain_s=1.0), name=f"close {node.address}")
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
                self.epoch += 1

    def all(self) -> Sequence[Node]:
        """Return every node that is kept."""
        return tuple(self._nodes.values())

    async def close(self) -> None:
        """Close every node's connections now."""
        await asyncio.gather(*(node.close() for node in self._nodes.values()), *self._leaving)
        self._nodes.clear()

    def new_connection(self, node: Node) -> Connection:
        """Return a connection that reports to its node; ``create_connection`` calls this."""
        return Connection(node, self.clock.monotonic, sweep_s=self._sweep_s, silence_s=self._silence_s)

    def change(self, node: Node) -> None:
        """Note that a node came, went or changed: earlier choices are void, and who waits for a node looks again."""
        self.epoch += 1
        self.listener.changed(node)
        self.wake()

    def wake(self) -> None:
        """Let everyone who waits for a node look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait_for_change(self, within_s: float) -> None:
        """Wait until any node changes, at most so long. For the rare read that finds no node at all."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await wait_for_all([waiter], self.clock, within_s)
        finally:
            self._waiters.discard(waiter)


class _Nobody:
    """Listens to nothing: nodes without a health monitor."""

    def greeted(self, node: Node, greeting: Greeting) -> None: ...

    def changed(self, node: Node) -> None: ...

    def unreachable(self, node: Node) -> None: ...
