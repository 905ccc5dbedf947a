"""A soak fails for what grew, for a wrong rank in ten thousand, and for a line in the log that nobody expects."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests import reads
from loadtests.steadiness import DOCUMENTED, grown, reasons, right_share, undocumented

ROOT = Path(__file__).parents[3]
SPEAKERS = [*ROOT.glob("gateway/replicas/*.py"), *ROOT.glob("gateway/server/*.py"), ROOT / "gateway" / "readpath.py"]

NOT_IN_A_SOAK = {
    "%s": "warnings about the settings, of which the soak's have none",
    "%s refused a part of our introduction with %s: see the ACL": "the soak has no accounts",
    "the name %s cannot be resolved": "the soak names addresses",
    "the cluster is whole": "the soak has Sentinel",
    "the cluster is not whole": "the soak has Sentinel",
    "requests were cut": "the load is over before the gateway is stopped",
    "the gateway did not close its connections in time": "a defect, if it comes",
    "a second signal: the drain is over": "one signal is sent",
}
"""What these modules say, below an error, that the soak must not let pass; and why it does not come."""

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
        ({"level": "info", "message": "leaderboard-gateway listens on http://127.0.0.1:8080"}, True),
        ({"level": "warning", "message": "replica 127.0.0.1:7001 is link_down (lag 0.4 s)"}, True),
        ({"level": "info", "message": "primary 127.0.0.1:1, replicas 127.0.0.1:2"}, True),
        ({"level": "warning", "message": "replica 127.0.0.1:7001 is bewitched"}, False),
        ({"level": "error", "message": "stopped"}, False),
        ({"level": "warning", "message": "stopped", "exception": "Traceback"}, False),
        ({"level": "warning", "message": "Task was destroyed but it is pending!"}, False),
    ],
)
def test_a_line_is_expected_if_it_is_documented_and_no_error(line: dict[str, str], expected: bool) -> None:
    assert (not undocumented([json.dumps(line)])) is expected


def test_what_is_no_log_line_at_all_is_not_expected() -> None:
    assert undocumented(["Traceback (most recent call last):"]) == ["Traceback (most recent call last):"]


def documented_lines() -> list[str]:
    """Return the lines that the operators' document says come while nodes fail and come back."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("\n## Logs\n")[2].partition("\n## ")[0]
    cells = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    return [line for cell in cells for line in re.findall(r"`([^`]+)`", cell)]


def spoken() -> set[str]:
    """Return every message, as a format, that the speakers write to the log as information or a warning."""
    trees = [ast.parse(path.read_text()) for path in SPEAKERS]
    return {message for tree in trees for node in ast.walk(tree) for message in messages_of(node)}


def messages_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr="info" | "warning"), args=[first, *_]):
            where: list[ast.expr] = [first]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr="log"), args=[ast.Starred() as all_]):
            where = [all_]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr="log"), args=[_, second, *_]):
            where = [second]
        case _:
            return
    for part in (part for each in where for part in ast.walk(each)):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def writes(message: str, line: str) -> bool:
    return re.fullmatch(re.escape(message).replace("%s", ".*"), line) is not None


def test_what_a_soak_lets_pass_is_exactly_what_the_operators_document_lists() -> None:
    lines = documented_lines()
    assert [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in DOCUMENTED)] == []
    assert [pattern for pattern in DOCUMENTED if not any(re.fullmatch(pattern, line) for line in lines)] == []


def test_every_line_in_the_document_is_one_that_the_gateway_writes() -> None:
    found = spoken() - set(NOT_IN_A_SOAK)
    assert [line for line in documented_lines() if not any(writes(message, line) for message in found)] == []


def test_every_line_that_the_gateway_writes_about_nodes_and_workers_is_let_pass_or_known_not_to_come() -> None:
    """A new log line fails here until it is in the document's table, or said not to come in a soak."""
    lines = documented_lines()
    told = {message for message in spoken() if any(writes(message, line) for line in lines)} | set(NOT_IN_A_SOAK)
    assert spoken() == told
