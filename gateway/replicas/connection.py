"""Connection: one multiplexed, pipelined connection to one node.

Knows: RESP through hiredis, the order of replies, deadlines of attempts.
Must not know: which node this is, what is asked, what a failure leads to.

The reply stream is the whole matter: Redis answers in the order asked, so the n-th reply belongs to the n-th slot,
whatever became of who asked.

1. ``send`` appends the request and a slot; the first of a loop turn books one write for all of that turn.
2. A caller that is cancelled or timed out leaves its slot where it is; its reply is read and dropped.
3. One timer for the whole connection, running only while something is waiting, ends attempts that are overdue.
4. A stream that cannot be trusted any more (garbage, a reply nobody asked for, silence at its head for longer than
   ``silence_s``, an end in mid-reply) is closed, and every caller still waiting learns it. It is never resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import hiredis

from gateway.replicas.failures import AttemptTimeout, ConnectionLost, ErrorReply

Answer: TypeAlias = asyncio.Future[Any]

_NOTHING = object()

_BATCH = 16
"""So many requests go out before the loop's turn ends. A crowd's turn is long: the node would idle through it, and then
the process through the node's. Measured with 64 readers: a fifth more rank reads, a third more neighbors."""
_HELD_UP_S = 0.05
"""A timer later than this says that the process was held up; less is what a busy loop takes."""


class Watcher(Protocol):
    """Who is told how a connection fares."""

    def connection_lost(self, connection: Connection) -> None:
        """Learn that it is closed; every caller has been told."""
        ...

    def connection_overdue(self, connection: Connection) -> None:
        """Learn that attempts ran out of time and nothing was answered in time since the last such call."""
        ...

    def connection_answers(self, latency_s: float) -> None:
        """Learn the latency of a reply that came in time: about one of each batch."""
        ...


class Connection(asyncio.Protocol):
    """A stream of requests and, in the same order, replies. ``pending`` holds a slot for each reply still to come."""

    __slots__ = (
        "_answered",
        "_call_later",
        "_call_soon",
        "_context",
        "_create_future",
        "_due",
        "_held_s",
        "_ignored",
        "_marked",
        "_marked_at",
        "_monotonic",
        "_out",
        "_reader",
        "_silence_s",
        "_sweep_s",
        "_timer",
        "_transport",
        "_watcher",
        "closed",
        "pending",
    )

    def __init__(
        self,
        watcher: Watcher,
        monotonic: Callable[[], float],
        *,
        sweep_s: float,
        silence_s: float,
    ) -> None:
        """Must be made inside the running loop. ``sweep_s``: how late an overdue attempt may be ended."""
        loop = asyncio.get_running_loop()
        self._call_soon, self._call_later, self._create_future = loop.call_soon, loop.call_later, loop.create_future
        self._watcher, self._monotonic = watcher, monotonic
        self._sweep_s, self._silence_s = sweep_s, silence_s
        self._context = contextvars.copy_context()  # of who opens it, which sweeps get, not of who sends first
        self._reader = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False
        self._due = 0.0
        self._held_s = 0.0
        self._marked: Answer | None = None
        self._marked_at = 0.0
        self._ignored = self._create_future()
        self._ignored.cancel()
        self.pending: deque[tuple[Answer, float]] = deque()
        self.closed = False

    def send(self, request: bytes, now: float, deadline: float) -> Answer:
        """Queue one request; the future gets the reply, an ``ErrorReply``, ``AttemptTimeout`` or ``ConnectionLost``.

        Cancelling the future, or who awaits it, is always safe. Must not be called once ``closed``.
        """
        future = self._create_future()
        self.pending.append((future, deadline - self._held_s))
        out = self._out
        if not out:
            self._call_soon(self._flush)
        out.append(request)
        if len(out) == _BATCH:
            self._flush()
        if self._marked is None:  # always so when nothing else is pending
            self._marked, self._marked_at = future, now
            if self._timer is None:  # while anything is pending, each sweep books the next
                self._book(now)
        return future

    def send_behind(self, before: tuple[bytes, ...], request: bytes, now: float, deadline: float) -> Answer:
        """Queue requests with nothing between them (``SCRIPT LOAD``, ``ASKING``); only the last one's reply counts."""
        if before:
            if not self._out:
                self._call_soon(self._flush)
            for first in before:
                self.pending.append((self._ignored, deadline - self._held_s))
                self._out.append(first)
        return self.send(request, now, deadline)

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _book(self, now: float) -> None:
        self._due = now + self._sweep_s
        self._timer = self._call_later(self._sweep_s, self._sweep, context=self._context)

    def _note_lateness(self) -> float:
        """Return the time, having noted by how much this timer is late: for so long the process was held up."""
        now = self._monotonic()
        late_s = now - self._due
        if late_s > _HELD_UP_S:
            self._held_s += late_s
        self._due = now
        return now

    def _sweep(self) -> None:
        # Time in which this process could not have read a reply counts against nobody's deadline: a crowd of thousands
        # keeps the loop busy for longer than an attempt may take, and a retry would only add to it.
        self._note_lateness()
        # Interleaving: 1. the process is held up for longer than an attempt may take. 2. The loop wakes and runs
        # timers before it reads sockets (libuv does). 3. This sweep finds everything overdue, though the replies have
        # long been in the socket. So sockets get their turn first: judgement is one turn of the loop later.
        self._timer = self._call_later(0.0, self._judge) if self.pending else None

    def _judge(self) -> None:
        """End the attempts that are overdue; give up the connection if its head has been silent for too long."""
        self._timer = None
        pending = self.pending
        if not pending:
            return
        now = self._note_lateness()
        running = now - self._held_s
        if running > pending[0][1] + self._silence_s:
            self.abort()
            return
        overdue = False
        for future, deadline in pending:
            if deadline <= running:
                overdue = True
                if not future.done():
                    future.set_exception(AttemptTimeout())
        if overdue and not self._answered:
            self._watcher.connection_overdue(self)
        self._answered = False
        self._book(now)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by the loop."""
        self._transport = transport  # type: ignore[assignment]  # create_connection's is a full one

    def data_received(self, data: bytes) -> None:
        """Hand out the replies that are whole; called by the loop."""
        reader = self._reader
        pending = self.pending
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                kind = reply.__class__
                if kind is hiredis.PushNotification:  # RESP3, out of band: not the answer to anything
                    continue
                future = pending.popleft()[0]
                if future is self._marked:
                    self._measure(future)
                if future.done():  # its caller is gone: the slot kept the order
                    continue
                if kind is ErrorReply:
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
                self._answered = True
        except (hiredis.ProtocolError, IndexError):
            # Not RESP, or a reply that nobody asked for: from here on any reply could be anybody's.
            self.abort()

    def _measure(self, future: Answer) -> None:
        self._marked = None
        if not future.done():
            self._watcher.connection_answers(self._monotonic() - self._marked_at)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """Tell everyone who waits; called by the loop."""
        self._transport = None
        self._close()

    def abort(self) -> None:
        """Drop the connection now; everyone who waits gets ``ConnectionLost``."""
        if self._transport is not None:
            self._transport.abort()
        self._close()

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.pending:
            future = self.pending.popleft()[0]
            if not future.done():
                future.set_exception(ConnectionLost())
        self._marked = None
        self._watcher.connection_lost(self)
