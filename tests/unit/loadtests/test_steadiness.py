"""A soak fails for what grew, for a wrong rank in ten thousand, and for a line in the log that nobody expects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtests import reads
from loadtests.steadiness import grown, reasons, right_share, undocumented

FLAT = {"resident_mib": 80.0, "open_files": 60.0, "tasks": 10.0, "flights": 0.0}
STARTED = json.dumps({"level": "info", "message": "all workers accept connections"})


def a_report(wrong: int = 0, of: int = 20_000, top_failed: int = 0, kept: float = 1.0) -> dict[str, Any]:
    return {
        "kept_share": kept,
        "routes": {
            reads.RANK: {"requests": of, "failures": {"wrong body": wrong}},
            reads.TOP: {"requests": 100, "failures": {"status 503": top_failed}},
        },
    }


def samples(name: str, values: list[float]) -> list[dict[str, float]]:
    return [FLAT | {name: value} for value in values]


def test_a_steady_run_has_no_reason_to_fail() -> None:
    assert reasons(a_report(), [FLAT] * 9, [STARTED, ""]) == []


@pytest.mark.parametrize(("wrong", "sound"), [(0, True), (2, True), (3, False)])
def test_one_wrong_rank_in_ten_thousand_is_the_limit(wrong: int, sound: bool) -> None:
    assert (not reasons(a_report(wrong), [FLAT] * 9, [])) is sound


def test_a_run_that_asked_for_no_rank_proves_nothing_about_ranks() -> None:
    assert right_share({"routes": {}}) == 0.0


def test_a_top_may_not_fail_once() -> None:
    assert reasons(a_report(top_failed=1), [FLAT] * 9, []) == ["1 reads of the top failed"]


def test_a_load_that_did_not_keep_its_rate_proves_nothing() -> None:
    assert "proves nothing" in reasons(a_report(kept=0.9), [FLAT] * 9, [])[0]


def test_what_is_more_at_the_end_than_in_the_middle_has_grown() -> None:
    rising = samples("resident_mib", [80, 80, 80, 80, 82, 84, 90, 95, 100])
    assert grown(rising) == ["resident_mib grew from 82.0 to 95.0"]


def test_filling_up_at_the_start_is_no_growth() -> None:
    assert grown(samples("open_files", [10, 40, 90, 94, 94, 94, 94, 96, 94])) == []


def test_a_little_more_of_little_is_no_growth() -> None:
    assert grown(samples("tasks", [10, 10, 10, 10, 10, 10, 18, 18, 18])) == []
    assert grown(samples("tasks", [10, 10, 10, 10, 10, 10, 21, 21, 21])) == ["tasks grew from 10.0 to 21.0"]


def test_too_few_samples_are_said_to_be_too_few() -> None:
    assert grown([FLAT] * 5) == ["5 samples are too few to tell whether anything grows"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"level": "info", "message": "leaderboard-gateway listens on 127.0.0.1:8080"}, True),
        ({"level": "warning", "message": "replica 127.0.0.1:7001 is link_down (lag 0.4 s)"}, True),
        ({"level": "info", "message": "primary 127.0.0.1:1, replicas 127.0.0.1:2"}, True),
        ({"level": "error", "message": "stopped"}, False),
        ({"level": "warning", "message": "stopped", "exception": "Traceback"}, False),
        ({"level": "warning", "message": "Task was destroyed but it is pending!"}, False),
    ],
)
def test_a_line_is_expected_if_it_is_documented_and_no_error(line: dict[str, str], expected: bool) -> None:
    assert (not undocumented([json.dumps(line)])) is expected


def test_what_is_no_log_line_at_all_is_not_expected() -> None:
    assert undocumented(["Traceback (most recent call last):"]) == ["Traceback (most recent call last):"]
