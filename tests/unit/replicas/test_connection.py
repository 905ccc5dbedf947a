"""The reply stream of one connection: whatever becomes of callers, the n-th reply is the n-th slot's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from gateway.replicas.connection import Answer, Connection
from gateway.replicas.failures import AttemptTimeout, ConnectionLost, ErrorReply
from tests.fakes import FakeClock, settle


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lost = self.overdue = 0
        self.latencies: list[float] = []

    def connection_lost(self, connection: Connection) -> None:
        assert not connection.pending, "everyone has been told first"
        self.lost += 1

    def connection_overdue(self, connection: Connection) -> None:
        self.overdue += 1

    def connection_answers(self, latency_s: float) -> None:
        self.latencies.append(latency_s)


class Rig:
    """A connection over a fake transport and clock. Sweeps run when the test says so: the real timer is an hour."""

    def __init__(self) -> None:
        self.clock, self.watcher, self.transport = FakeClock(), Watcher(), Transport()
        self.connection = Connection(self.watcher, self.clock.monotonic, sweep_s=3600.0, silence_s=1.0)
        self.connection.connection_made(self.transport)

    def send(self, request: bytes = b"x", within_s: float = 0.2) -> Answer:
        now = self.clock.monotonic()
        return self.connection.send(request, now, now + within_s)

    def receive(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.connection.data_received(chunk)

    def sweep(self, after_s: float) -> None:
        self.clock.advance(after_s)
        self.connection._judge()


@pytest.fixture
async def rig() -> Any:
    rig = Rig()
    yield rig
    rig.connection.abort()


async def test_requests_of_one_loop_turn_are_one_write_and_replies_come_in_order(rig: Rig) -> None:
    first, second = rig.send(b"one"), rig.send(b"two")
    await asyncio.sleep(0)
    assert rig.transport.writes == [b"onetwo"]
    rig.receive(b":1\r\n:", b"2\r\n")
    assert (await first, await second) == (1, 2)


async def test_a_crowds_requests_begin_to_go_out_before_the_turn_ends(rig: Rig) -> None:
    answers = [rig.send(b"%d;" % number) for number in range(40)]
    assert rig.transport.writes == [
        b"".join(b"%d;" % n for n in range(16)),
        b"".join(b"%d;" % n for n in range(16, 32)),
    ]
    await settle()
    assert b"".join(rig.transport.writes) == b"".join(b"%d;" % number for number in range(40))
    rig.receive(b"".join(b":%d\r\n" % number for number in range(40)))
    assert [await answer for answer in answers] == list(range(40))


async def test_a_cancelled_callers_slot_stays_in_order(rig: Rig) -> None:
    answers = [rig.send() for _ in range(3)]
    answers[1].cancel()
    rig.receive(b":1\r\n:2\r\n:3\r\n")
    assert (await answers[0], await answers[2]) == (1, 3)


async def test_an_overdue_attempt_ends_and_its_late_reply_is_dropped(rig: Rig) -> None:
    late = rig.send()
    rig.sweep(0.25)
    with pytest.raises(AttemptTimeout):
        await late
    later = rig.send()
    rig.receive(b":1\r\n:2\r\n")
    assert await later == 2
    assert rig.watcher.overdue == 1


async def test_an_attempt_is_not_ended_before_its_time(rig: Rig) -> None:
    answer = rig.send()
    rig.sweep(0.19)
    rig.receive(b":1\r\n")
    assert await answer == 1
    assert rig.watcher.overdue == 0


async def test_a_short_deadline_behind_a_long_one_is_kept(rig: Rig) -> None:
    long, short = rig.send(within_s=0.5), rig.send(within_s=0.05)
    rig.sweep(0.1)
    with pytest.raises(AttemptTimeout):
        await short
    rig.receive(b":1\r\n:2\r\n")
    assert await long == 1


async def test_overdue_attempts_are_no_failure_of_the_node_while_others_are_answered_in_time(rig: Rig) -> None:
    slow = rig.send(within_s=0.01)
    rig.send().cancel()
    quick = rig.send()
    rig.sweep(0.005)
    rig.receive(b":1\r\n:2\r\n:3\r\n")
    rig.send(within_s=0.01)
    rig.sweep(0.05)
    assert (await slow, await quick) == (1, 3)
    assert rig.watcher.overdue == 0


async def test_replies_that_came_while_the_process_was_held_up_are_read_before_anyone_is_overdue(rig: Rig) -> None:
    answer = rig.send()
    rig.clock.advance(10.0)
    rig.connection._sweep()
    rig.receive(b":1\r\n")
    await settle()
    assert await answer == 1
    assert not rig.connection.closed


async def test_time_in_which_the_process_was_held_up_counts_against_nobodys_deadline(rig: Rig) -> None:
    """A crowd of thousands keeps the loop busy before Redis was even asked; a second attempt would be no help."""
    answer = rig.send(within_s=0.2)
    rig.connection._due = rig.clock.monotonic() + 0.02
    rig.clock.advance(3.0)
    rig.connection._sweep()
    await settle()
    assert not answer.done()
    rig.sweep(0.1)
    assert not answer.done()
    rig.sweep(0.15)
    with pytest.raises(AttemptTimeout):
        await answer


async def test_silence_at_the_head_drops_the_connection_and_tells_everyone(rig: Rig) -> None:
    head = rig.send()
    rig.sweep(0.3)
    behind = rig.send(within_s=5.0)
    rig.sweep(1.0)
    assert rig.transport.aborted
    with pytest.raises(AttemptTimeout):
        await head
    with pytest.raises(ConnectionLost):
        await behind
    assert rig.connection.closed
    assert rig.watcher.lost == 1


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+never asked for\r\n+nor this\r\n"])
async def test_a_stream_that_cannot_be_trusted_is_dropped(rig: Rig, garbage: bytes) -> None:
    answer = rig.send()
    rig.receive(garbage)
    assert rig.transport.aborted
    assert rig.connection.closed
    assert answer.done()
    answer.exception()


async def test_a_connection_that_ends_in_mid_reply_answers_nobody(rig: Rig) -> None:
    answer = rig.send()
    rig.receive(b"*2\r\n$3\r\nabc\r\n$3\r\nd")
    rig.connection.connection_lost(None)
    with pytest.raises(ConnectionLost):
        await answer


async def test_an_error_reply_is_its_code_and_raised_to_its_caller_alone(rig: Rig) -> None:
    wrong, right = rig.send(), rig.send()
    rig.receive(b"-WRONGTYPE Operation against\r\n:2\r\n")
    with pytest.raises(ErrorReply) as caught:
        await wrong
    assert (caught.value.code, caught.value.detail) == ("WRONGTYPE", "Operation against")
    assert await right == 2


async def test_a_push_message_is_nobodys_reply(rig: Rig) -> None:
    answer = rig.send()
    rig.receive(b">2\r\n+invalidate\r\n*0\r\n:1\r\n")
    assert await answer == 1


async def test_requests_sent_before_another_get_slots_of_their_own(rig: Rig) -> None:
    now = rig.clock.monotonic()
    answer = rig.connection.send_behind((b"load", b"asking"), b"read", now, now + 0.2)
    after = rig.send(b"next")
    await asyncio.sleep(0)
    assert rig.transport.writes == [b"loadaskingreadnext"]
    rig.receive(b"+sha\r\n-ERR not asked\r\n:7\r\n:8\r\n")
    assert (await answer, await after) == (7, 8)


async def test_latency_is_measured_from_a_send_to_its_reply(rig: Rig) -> None:
    rig.send()
    rig.clock.advance(0.05)
    rig.receive(b":1\r\n")
    assert rig.watcher.latencies == [pytest.approx(0.05)]


async def test_nothing_is_written_and_nothing_fails_once_the_transport_is_gone(rig: Rig) -> None:
    answer = rig.send()
    rig.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert rig.transport.writes == []
    assert isinstance(answer.exception(), ConnectionLost)
    rig.connection.abort()
    assert rig.watcher.lost == 1


def chunks_of(data: bytes, numbers: random.Random) -> Iterator[bytes]:
    while data:
        size = numbers.randrange(1, 12)
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("seed", range(5))
async def test_random_cancels_timeouts_and_chunk_borders_never_shift_a_reply(rig: Rig, seed: int) -> None:
    numbers = random.Random(seed)
    answers: dict[int, Answer] = {}
    for number in range(500):
        answers[number] = rig.send(b"%d;" % number, within_s=numbers.choice([0.01, 10.0]))
    for number in numbers.sample(range(500), 100):
        answers[number].cancel()
    rig.sweep(0.02)
    rig.receive(*chunks_of(b"".join(b":%d\r\n" % number for number in range(500)), numbers))
    for number, answer in answers.items():
        if not answer.cancelled() and answer.exception() is None:
            assert answer.result() == number
    assert not rig.connection.pending


async def test_an_overdue_attempt_is_told_in_the_name_of_no_request(rig: Rig) -> None:
    request: ContextVar[str] = ContextVar("request", default="nobody's")
    booked: list[Context] = []
    real = rig.connection._call_later

    def call_later(delay_s: float, callback: Any, *, context: Context | None = None) -> asyncio.TimerHandle:
        booked.append(context or copy_context())
        return real(delay_s, callback)

    rig.connection._call_later = call_later  # type: ignore[assignment]
    request.set("whose attempt is overdue")
    rig.send()
    assert [context.run(request.get) for context in booked] == ["nobody's"]
