"""The driver counts every request exactly once, whatever a server does to its connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat

import pytest

from loadtests.arrivals import Schedule
from loadtests.driver import BROKEN, UNANSWERED, UNREADABLE, WRONG, Driver, Request
from loadtests.tally import Route, Tally
from loadtests.wire import Answer, get
from tests.servers import free_port

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CLOSING = ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
COUNT = 30

Serve = Callable[[socket.socket], None]


@contextmanager
def server(serve: Serve) -> Iterator[tuple[str, int]]:
    """Accept connections on loopback, each served in a thread, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, args=(listener, serve))
        accepting.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def accept(listener: socket.socket, serve: Serve) -> None:
    threads = []
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threads.append(threading.Thread(target=guarded, args=(connection, serve)))
            threads[-1].start()
    for thread in threads:
        thread.join()


def guarded(connection: socket.socket, serve: Serve) -> None:
    with connection, suppress(OSError):
        serve(connection)


def answering(*answers: bytes) -> Serve:
    """Answer a connection's requests with these, in turn and for ever; end it with an answer that says so."""

    def serve(connection: socket.socket) -> None:
        for answer in (answer for _ in repeat(None) for answer in answers):
            if not connection.recv(4096):
                return
            connection.sendall(answer)
            if answer == CLOSING:
                return

    return serve


DRAIN_S = 60.0
"""How long answers are waited for that come in any case: as long as the machine takes."""


def drive(address: tuple[str, int], expect: bytes = b"", drain_s: float = DRAIN_S) -> Route:
    """Send ``COUNT`` requests over two connections and return what was counted."""
    tally = Tally(("top",))
    request = Request("top", get("h", "/"), expect)
    schedule = Schedule(rate=COUNT / 0.3, seconds=0.3)
    Driver(address, schedule, repeat(request), tally, connections=2, drain_s=drain_s).run(lambda: None, lambda: None)
    assert tally.pace.done
    assert sum(tally.pace.asked.values()) == COUNT
    counted = tally.take()["top"]
    assert sum(counted.buckets.values()) == COUNT
    return counted


def test_answers_on_kept_connections_are_counted_and_none_fails() -> None:
    with server(answering(ANSWER)) as address:
        counted = drive(address, b"hello")
    assert (dict(counted.failures), counted.content_bytes) == ({}, 5 * COUNT)


def test_an_answer_in_pieces_is_one_answer() -> None:
    def in_pieces(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while connection.recv(4096):
            for byte in ANSWER:
                connection.sendall(bytes([byte]))

    with server(in_pieces) as address:
        assert dict(drive(address, b"hello").failures) == {}


def test_a_server_that_ends_connections_in_order_costs_no_request() -> None:
    with server(answering(ANSWER, CLOSING)) as address:
        assert dict(drive(address).failures) == {}


def test_a_connection_that_breaks_fails_its_request_only_and_is_replaced() -> None:
    def every_third_breaks(connection: socket.socket) -> None:
        for _ in range(2):
            if not connection.recv(4096):
                return
            connection.sendall(ANSWER)
        connection.recv(4096)
        connection.sendall(ANSWER[:10])

    with server(every_third_breaks) as address:
        counted = drive(address)
    assert set(counted.failures) == {BROKEN}
    assert 1 <= counted.failures[BROKEN] <= COUNT // 3 + 2


@pytest.mark.parametrize(
    ("answer", "expect", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n\r\n", b"", UNREADABLE),
        (ANSWER, b"goodbye", WRONG),
        (ANSWER.replace(b"200 OK", b"503 No"), b"", "status 503"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said_in_a_few_words(answer: bytes, expect: bytes, reason: str) -> None:
    with server(answering(answer)) as address:
        assert dict(drive(address, expect).failures) == {reason: COUNT}


def test_a_304_is_right_whatever_body_was_expected() -> None:
    with server(answering(b"HTTP/1.1 304 Not Modified\r\n\r\n")) as address:
        assert dict(drive(address, b"hello").failures) == {}


def test_g1_requests_that_are_never_answered_are_failures_with_the_time_they_waited() -> None:
    def silent(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with server(silent) as address:
        counted = drive(address, drain_s=0.2)
    assert dict(counted.failures) == {UNANSWERED: COUNT}
    assert counted.least_ms >= 200


def test_the_caller_is_shown_the_answers_it_asked_for() -> None:
    shown: list[tuple[int, bytes]] = []

    def learn(request: Request, answer: Answer, data: bytearray) -> None:
        shown.append((answer.status, bytes(data[answer.body_at : answer.end])))

    request = Request("top", get("h", "/"), board="b")
    with server(answering(ANSWER)) as address:
        schedule, tally = Schedule(rate=20, seconds=0.1), Tally(("top",))
        driver = Driver(address, schedule, repeat(request), tally, connections=1, drain_s=DRAIN_S, learn=learn)
        driver.run(lambda: None, lambda: None)
    assert shown == [(200, b"hello"), (200, b"hello")]


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(ConnectionRefusedError):
        drive(("127.0.0.1", free_port()))
