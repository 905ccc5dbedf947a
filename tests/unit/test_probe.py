"""The probe: what it counts towards the bound, and what it does when something fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from gateway.probe import Plan, Probe, Report, seen_in
from tests.fakes import FakeClock

URL = "http://edge.example/v1/leaderboards/probe/top?limit=1"


def page(score: float, *, stale: bool = False, member: str = "probe") -> bytes:
    return json.dumps({"stale": stale, "entries": [{"rank": 1, "member": member, "score": score}]}).encode()


Handler = Callable[[httpx.Request], httpx.Response]


class Scores:
    """The board, as the probe writes it; ``fails`` makes every further write fail."""

    def __init__(self) -> None:
        self.written: list[float] = []
        self.fails = False

    async def write(self, wall: float) -> None:
        if self.fails:
            raise OSError("Redis is gone")
        self.written.append(wall)


async def probed(handler: Handler, clock: FakeClock, scores: Scores) -> Report:
    """Probe for two seconds, ten reads a second."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
        run = asyncio.create_task(
            Probe(scores.write, client, clock).run(Plan(URL, reads_per_s=10, seconds=2, bound_s=5.0))
        )
        await clock.elapse(3)
        return await run


def test_a_report_says_the_distribution_the_worst_and_whether_the_bound_held() -> None:
    report = Report([0.1 * number for number in range(1, 101)], 3, {"ReadTimeout": 2}, bound_s=9.0)
    assert report.percentile(0.5) == pytest.approx(5.0)
    assert report.worst_s == pytest.approx(10.0)
    assert not report.kept
    text = "\n".join(report.lines())
    assert "105: 100 answered, 3 marked stale, 2 failed" in text
    assert "worst 10.00 s" in text
    assert "NOT KEPT" in text
    assert "2 × ReadTimeout" in text


def test_nothing_read_proves_nothing() -> None:
    report = Report([], 10, {}, bound_s=9.0)
    assert not report.kept
    assert "nothing to judge by" in "\n".join(report.lines())


def test_a_page_without_the_probe_s_member_alone_is_no_measurement() -> None:
    assert seen_in(page(12.5)).score == 12.5
    with pytest.raises(ValueError, match="the probe's member"):
        seen_in(page(12.5, member="somebody"))


async def test_reads_come_at_even_intervals_and_their_age_is_now_minus_the_score() -> None:
    clock, scores = FakeClock(), Scores()
    report = await probed(lambda _: httpx.Response(200, content=page(clock.wall() - 1.5)), clock, scores)
    assert len(report.ages_s) == 20
    assert report.worst_s == pytest.approx(1.5)
    assert report.kept


async def test_scores_change_all_the_time_while_reads_go_on() -> None:
    clock, scores = FakeClock(), Scores()
    await probed(lambda _: httpx.Response(200, content=page(scores.written[-1])), clock, scores)
    assert len(scores.written) >= 90
    assert scores.written == sorted(set(scores.written))


async def test_answers_that_say_that_they_are_stale_are_counted_apart() -> None:
    clock, scores = FakeClock(), Scores()
    report = await probed(lambda _: httpx.Response(200, content=page(0, stale=True)), clock, scores)
    assert report.marked_stale == 20
    assert not report.ages_s


async def test_failed_reads_are_counted_by_reason_and_stop_nothing() -> None:
    clock, scores = FakeClock(), Scores()
    answers: list[httpx.Response | httpx.HTTPError] = [
        httpx.Response(503),
        httpx.ConnectError("refused"),
        httpx.Response(200, content=b"<html>"),
    ]

    def handler(_: httpx.Request) -> httpx.Response:
        answer = answers.pop() if answers else httpx.Response(200, content=page(clock.wall()))
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    report = await probed(handler, clock, scores)
    assert report.failures == {"status 503": 1, "ConnectError": 1, "an answer without the probe's member": 1}
    assert len(report.ages_s) == 17


async def test_a_writer_that_fails_ends_the_probe_with_its_error() -> None:
    clock, scores = FakeClock(), Scores()
    scores.fails = True
    with pytest.raises(OSError, match="Redis is gone"):
        await probed(lambda _: httpx.Response(200, content=page(0)), clock, scores)


async def test_a_probe_begins_once_its_member_shows_since_an_edge_may_hold_the_empty_board() -> None:
    bodies = [b'{"entries":[],"stale":false}', b"not JSON", b'{"entries":[{"member":"probe","score":1}],"stale":false}']
    asked: list[int] = []

    def answer(_: httpx.Request) -> httpx.Response:
        asked.append(1)
        return httpx.Response(200, content=bodies[min(len(asked), len(bodies)) - 1])

    async def write(_: float) -> None: ...

    clock = FakeClock()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        task = asyncio.create_task(Probe(write, client, clock).settle(Plan(URL, 5.0, 10.0, 1.0)))
        for _ in range(200):
            await asyncio.sleep(0)
            clock.advance(0.01)
        await task
    assert len(asked) == 3
