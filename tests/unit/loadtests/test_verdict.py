"""A verdict is void where the measurement deceives, and each of the four known deceptions is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.arrivals import Schedule
from loadtests.latencies import bucket_ms, percentile
from loadtests.tally import Pace, Tally, Usage
from loadtests.verdict import (
    Claim,
    Measured,
    busiest_share,
    judge,
    kept_share,
    report,
    void_reasons,
)

CLAIM = Claim(rate=1000, p99_ms={"top": 50.0})


def pace(answered: Mapping[int, int] | None = None, busy: float = 0.3, asked: int = 1000, seconds: int = 60) -> Pace:
    told = dict.fromkeys(range(seconds), asked)
    return Pace(told, dict(answered if answered is not None else told), dict.fromkeys(told, busy), True)


GOOD = Measured(latencies={"top": {1.0: 59_000, 40.0: 1000}}, paces=[pace()], calibrated_rate=1500)


def test_a_sound_run_that_keeps_its_claims_passes() -> None:
    verdict = judge(CLAIM, GOOD)
    assert (verdict.outcome, verdict.reasons, verdict.exit_status) == ("passed", (), 0)
    assert verdict.line("mixed") == "verdict mixed: PASSED"
    assert verdict.remarks == (
        "100.0% of the asked rate reached; 0 of 60 seconds below 95%, the worst second 0 at 100%",
    )


# 1. Slow answers hide themselves.


@given(st.floats(0, 1))
def test_g1_a_run_below_95_percent_of_the_asked_rate_is_void_and_no_other(share: float) -> None:
    answered = {second: round(1000 * share) for second in range(60)}
    verdict = judge(CLAIM, replace(GOOD, paces=[pace(answered)]))
    assert (verdict.outcome == "void") == (kept_share([pace(answered)]) < 0.95)


def test_g1_a_pause_shows_in_the_percentile_although_few_requests_were_under_way() -> None:
    """2,000 reads a second, a server that answers in 1 ms but stands still for 2 s of 60: the p99 is the pause."""
    schedule = Schedule(rate=2000, seconds=60)
    pause_from, pause_to = 30.0, 32.0
    open_loop = Tally(("top",))
    for index in range(schedule.count):
        due = schedule.due_at(index)
        answered = max(due, pause_to) if pause_from <= due < pause_to else due
        open_loop.answered("top", answered + 0.001 - due, answered, 0)
    buckets = open_loop.routes["top"].buckets
    assert percentile(buckets, 0.99) > 1000
    # One that waits for its answer before it asks again has sent 10 requests into the pause, on 10 connections.
    closed_loop = {bucket_ms(1.0): schedule.count - 4000, bucket_ms(2001.0): 10}
    assert percentile(closed_loop, 0.99) == 1.0


def test_g1_the_worst_second_is_named_even_where_the_whole_is_kept() -> None:
    answered = dict.fromkeys(range(60), 1000) | {30: 0, 31: 2000}
    verdict = judge(CLAIM, replace(GOOD, paces=[pace(answered)]))
    assert verdict.outcome == "passed"
    assert verdict.remarks[0].endswith("1 of 60 seconds below 95%, the worst second 30 at 0%")


# 2. The generator is the limit.


@given(st.floats(1, 100_000), st.floats(1, 100_000))
def test_g2_a_generator_that_was_not_seen_at_one_and_a_half_times_the_claim_voids(rate: float, reached: float) -> None:
    reasons = void_reasons(replace(CLAIM, rate=rate), replace(GOOD, calibrated_rate=reached))
    assert bool(reasons) == (reached < 1.5 * rate)


def test_g2_a_generator_that_was_not_calibrated_voids() -> None:
    verdict = judge(CLAIM, replace(GOOD, calibrated_rate=None))
    assert verdict.exit_status == 3
    assert verdict.line("mixed") == (
        "verdict mixed: VOID (the generator was not calibrated against a constant endpoint)"
    )


def test_g2_a_process_that_did_not_measure_itself_is_not_taken_for_an_idle_one() -> None:
    verdict = judge(CLAIM, replace(GOOD, paces=[pace(), replace(pace(), busy={})]))
    assert verdict.outcome == "void"
    assert verdict.reasons == ("a generator process did not measure what it used of a core",)


def test_g2_what_a_process_used_of_a_core_is_noted_second_by_second(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([10.0, 10.95, 11.15])
    monkeypatch.setattr("loadtests.tally.process_time", lambda: next(used))
    noted = Pace()
    usage = Usage(noted)
    for elapsed in (0.4, 1.0, 1.5, 2.0):
        usage.note(elapsed)
    assert noted.busy == pytest.approx({0: 0.95, 1: 0.2})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_g2_a_process_that_was_the_limit_for_five_seconds_voids(busy: list[float]) -> None:
    measured = replace(GOOD, paces=[pace(), Pace({}, {}, dict(enumerate(busy)))])
    width = min(5, len(busy))
    worst = max(sum(busy[start : start + width]) / width for start in range(len(busy) - width + 1))
    assert busiest_share(measured.paces) == pytest.approx(max(worst, 0.3))
    assert bool(void_reasons(CLAIM, measured)) == (busiest_share(measured.paces) > 0.9)


def test_g2_a_short_peak_of_a_generator_is_no_limit() -> None:
    busy = dict.fromkeys(range(60), 0.2) | {10: 1.0}
    assert judge(CLAIM, replace(GOOD, paces=[replace(pace(), busy=busy)])).outcome == "passed"


# 3. Generator and server disagree.


def test_g3_a_median_that_the_server_did_not_see_is_said() -> None:
    measured = replace(GOOD, latencies={"top": {9.0: 1000, 40.0: 1}}, server_p50_ms={"top": 0.5, "rank": 1.0})
    verdict = judge(CLAIM, measured)
    assert [remark for remark in verdict.remarks if "median of top is 9.0 ms, the server's 0.5 ms" in remark]
    assert not [remark for remark in verdict.remarks if "rank" in remark]


def test_g3_medians_within_the_margin_are_not_worth_a_word() -> None:
    measured = replace(GOOD, latencies={"top": {5.4: 1000}}, server_p50_ms={"top": 0.5})
    assert not [remark for remark in judge(CLAIM, measured).remarks if "median" in remark]


# 4. Names explode.


@given(st.lists(st.tuples(st.sampled_from(("top", "rank")), st.sampled_from(("status 503", "connection broken")))))
def test_g4_however_much_fails_the_rows_are_routes_times_reasons(failures: list[tuple[str, str]]) -> None:
    tally = Tally(("top", "rank"))
    for route, reason in failures:
        tally.answered(route, 0.001, 1.0, 10, reason)
    taken = tally.take()
    assert set(taken) <= {"top", "rank"}
    assert sum(len(counts.failures) for counts in taken.values()) <= 4
    assert sum(sum(counts.failures.values()) for counts in taken.values()) == len(failures)


def test_g4_a_name_that_was_not_declared_is_refused() -> None:
    with pytest.raises(KeyError):
        Tally(("rank",)).answered("/v1/leaderboards/b/members/ann", 0.001, 1.0, 10)


# What is claimed.


def test_a_failure_fails_the_run_unless_it_is_of_the_allowed_kind() -> None:
    failures = {"rank": {"status 503": 7, "status 500": 1}, "top": {"status 503": 2}}
    claim = replace(CLAIM, allowed_failures={"rank": frozenset({"status 503"})})
    verdict = judge(claim, replace(GOOD, failures=failures))
    assert verdict.exit_status == 1
    assert verdict.reasons == ("1 × rank: status 500", "2 × top: status 503")


def test_a_percentile_beyond_the_claim_fails_the_run() -> None:
    verdict = judge(CLAIM, replace(GOOD, latencies={"top": {1.0: 98, 60.0: 2}}))
    assert verdict.reasons == ("p99 of top is 60.0 ms, more than 50 ms",)


def test_a_claimed_route_that_saw_nothing_proves_nothing() -> None:
    claim = replace(CLAIM, p99_ms={"top": 50.0, "rank": 100.0})
    assert judge(claim, GOOD).reasons == ("p99 of rank is nan ms, more than 100 ms",)


def test_a_run_without_any_answer_is_void() -> None:
    verdict = judge(Claim(), Measured(latencies={"top": {}}))
    assert (verdict.outcome, verdict.reasons) == ("void", ("nothing was answered",))


def test_a_closed_loop_needs_no_calibration() -> None:
    assert judge(Claim(), Measured(latencies={"top": {1.0: 10}})).outcome == "passed"


def test_the_report_holds_what_the_verdict_was_made_of() -> None:
    told: dict[str, Any] = report("mixed", CLAIM, replace(GOOD, server_p50_ms={"top": 0.5}))
    assert (told["outcome"], told["rate_asked"], told["kept_share"]) == ("passed", 1000, 1.0)
    assert told["routes"]["top"]["p99_ms"] == 40.0
    assert told["routes"]["top"]["server_p50_ms"] == 0.5
    assert told["seconds"][0] == [0, 1000, 1000]


def test_a_pace_survives_the_way_to_another_process() -> None:
    assert Pace.from_json(pace().as_json()) == pace()
