"""Driver: sends requests when they are due over a set of kept connections, and times the answers.

Knows: sockets, epoll, the schedule.
Must not know: Locust, leaderboards.

It runs inside Locust's gevent loop but waits in an epoll of its own, for at most ``PATIENCE_S`` at a time, and hands
control back every ``SLICE_S``: a greenlet switch per request would cost as much as the request. The socket and epoll
are the C ones, since gevent replaces those of the standard library.
"""

from __future__ import annotations

import _socket
import errno
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import Any, NamedTuple

from loadtests import green
from loadtests.arrivals import Schedule
from loadtests.tally import Tally, Usage
from loadtests.wire import Answer, Unreadable, answer_in

PATIENCE_S = 0.001
SLICE_S = 0.01
RECEIVE_BYTES = 256 * 1024
CONNECT_S = 5.0

BROKEN = "connection broken"
UNREADABLE = "unreadable answer"
UNANSWERED = "no answer by the end"
WRONG = "wrong body"


class Request(NamedTuple):
    """One request: its group's name, its bytes, and bytes that a right answer's body contains (empty: any)."""

    route: str
    data: bytes
    expect: bytes = b""
    board: str = ""
    """Given where the caller wants to see the whole answer (for the board's validator)."""


Learn = Callable[[Request, Answer, bytearray], None]


class Connection:
    """One kept connection, and what is under way on it."""

    __slots__ = ("buffer", "due", "request", "socket")

    def __init__(self, sock: Any) -> None:
        self.socket = sock
        self.buffer = bytearray()
        self.request: Request | None = None
        self.due = 0.0


class Driver:
    """Keep ``schedule`` against one server over at most ``connections`` connections.

    Requests that find no free connection wait for one, in the order in which they were due, and their waiting is part
    of their latency.
    """

    def __init__(
        self,
        address: tuple[str, int],
        schedule: Schedule,
        requests: Iterator[Request],
        tally: Tally,
        *,
        connections: int,
        drain_s: float = 2.0,
        learn: Learn | None = None,
    ) -> None:
        self._address = address
        self._schedule = schedule
        self._requests = requests
        self._tally = tally
        self._limit = connections
        self._drain_s = drain_s
        self._learn = learn
        self._idle: list[Connection] = []
        self._open: dict[int, Connection] = {}
        self._waiting: deque[tuple[float, Request]] = deque()
        self._poll: Any = None
        self._began = 0.0
        self._sent = 0

    def run(self, yield_now: Callable[[], None], flush: Callable[[], None]) -> None:
        """Send everything that is due, wait for the last answers, and count those that never came.

        ``yield_now`` lets other greenlets run; ``flush`` is called twice a second with the tally filled.
        """
        self._poll = green.epoll()
        try:
            for _ in range(self._limit):
                self._connect()
            self._tally.pace.asked = self._schedule.asked_by_second()
            self._loop(yield_now, flush)
        finally:
            self._give_up()
            self._tally.pace.done = True
            flush()
            for connection in list(self._open.values()):
                self._close(connection)
            self._poll.close()

    def _loop(self, yield_now: Callable[[], None], flush: Callable[[], None]) -> None:
        self._began = monotonic()
        usage = Usage(self._tally.pace)
        yielded = flushed = self._began
        while True:
            now = monotonic()
            self._send_due(now)
            self._receive(self._poll.poll(self._wait_s(now)))
            now = monotonic()
            if now - yielded > SLICE_S:
                yield_now()
                yielded = now
                usage.note(now - self._began)
            if now - flushed > 0.5:
                flush()
                flushed = now
            if self._finished(now):
                return

    def _finished(self, now: float) -> bool:
        """Say whether everything was sent and answered, or is overdue."""
        elapsed = now - self._began
        if elapsed < self._schedule.seconds or self._sent < self._schedule.count:
            return False
        underway = len(self._waiting) + len(self._open) - len(self._idle)
        return not underway or elapsed > self._schedule.seconds + self._drain_s

    def _wait_s(self, now: float) -> float:
        """Return how long nothing needs to be sent, within the patience."""
        if self._sent >= self._schedule.count:
            return PATIENCE_S
        return max(0.0, min(PATIENCE_S, self._began + self._schedule.due_at(self._sent) - now))

    def _send_due(self, now: float) -> None:
        began, due_at = self._began, self._schedule.due_at
        due = self._schedule.due_by(now - began)
        while self._sent < due:
            self._waiting.append((began + due_at(self._sent), next(self._requests)))
            self._sent += 1
        while self._waiting and len(self._open) < self._limit and self._connect():
            pass
        while self._waiting and self._idle:
            intended, request = self._waiting.popleft()
            self._send(self._idle.pop(), intended, request)

    def _send(self, connection: Connection, intended: float, request: Request) -> None:
        connection.request = request
        connection.due = intended
        try:
            connection.socket.send(request.data)
        except OSError:
            self._broken(connection)

    def _receive(self, ready: list[tuple[int, int]]) -> None:
        for descriptor, _ in ready:
            connection = self._open.get(descriptor)
            if connection is None:
                continue
            try:
                data = connection.socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._broken(connection)
                continue
            connection.buffer += data
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        """Take the answer if it is whole."""
        buffer, request = connection.buffer, connection.request
        try:
            answer = answer_in(buffer)
        except Unreadable:
            self._count(connection, UNREADABLE)
            self._close(connection)
            return
        if answer is None or len(buffer) < answer.end:
            return
        if request is None:  # an answer that nobody asked for: a server's 408, say
            self._close(connection)
            return
        self._count(connection, self._judge(request, answer, buffer), answer.end - answer.body_at)
        if request.board and self._learn is not None:
            self._learn(request, answer, buffer)
        buffer.clear()
        connection.request = None
        if answer.closing:
            self._close(connection)
        else:
            self._idle.append(connection)

    @staticmethod
    def _judge(request: Request, answer: Answer, data: bytearray) -> str | None:
        """Return why an answer is a failure; None if it is right. Reasons never name a member."""
        if answer.status == 304:
            return None
        if answer.status != 200:
            return f"status {answer.status}"
        if request.expect and data.find(request.expect, answer.body_at) < 0:
            return WRONG
        return None

    def _count(self, connection: Connection, failure: str | None, size: int = 0) -> None:
        if connection.request is not None:
            self._count_request(connection.request, connection.due, failure, size)

    def _count_request(self, request: Request, due: float, failure: str | None, size: int = 0) -> None:
        now = monotonic()
        self._tally.answered(request.route, now - due, time(), size, failure)
        if failure != UNANSWERED:
            self._tally.pace.answered[int(now - self._began)] += 1

    def _give_up(self) -> None:
        """Count what is still unanswered at the end, with the time it has waited so far."""
        for connection in self._open.values():
            self._count(connection, UNANSWERED)
            connection.request = None
        for due, request in self._waiting:
            self._count_request(request, due, UNANSWERED)
        self._waiting.clear()

    def _broken(self, connection: Connection) -> None:
        self._count(connection, BROKEN)
        self._close(connection)

    def _connect(self) -> bool:
        """Open one more connection; its completion is not waited for. Return False if that is impossible now."""
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        sock.settimeout(CONNECT_S if not self._began else 0.2)
        try:
            sock.connect(self._address)
        except OSError as error:
            sock.close()
            if not self._began and error.errno != errno.EAGAIN:
                raise
            return False
        sock.setblocking(False)
        connection = Connection(sock)
        self._open[sock.fileno()] = connection
        self._idle.append(connection)
        self._poll.register(sock.fileno(), green.READABLE)
        return True

    def _close(self, connection: Connection) -> None:
        descriptor = connection.socket.fileno()
        self._poll.unregister(descriptor)
        del self._open[descriptor]
        if connection in self._idle:
            self._idle.remove(connection)
        connection.request = None
        connection.socket.close()
