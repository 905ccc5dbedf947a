"""Readings taken in turn become ratios within rounds, rows that say what was asked, and a table in a document."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from loadtests import runs, scale
from loadtests.contest import Line, row_of
from loadtests.measure import Rounds, Spread, take_turns
from loadtests.table import BEGIN, END, Row, as_markdown, as_text, replaced
from loadtests.wrk import Reading, reading_of

WRK = """\
Running 3s test @ http://127.0.0.1:1/top
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.31ms  513.00us  18.02ms   95.02%
    Req/Sec    27.87k     1.10k   29.13k    83.33%
  Latency Distribution
     50%    2.22ms
     75%    2.38ms
     90%    2.61ms
     99%  987.00us
  83239 requests in 3.00s, 588.05MB read
{extra}Requests/sec:  27742.16
Transfer/sec:    195.99MB
"""


def a_reading(per_second: float, failed: int = 0) -> Reading:
    return Reading(per_second, 1.0, 2.0, 100, failed)


def test_contenders_take_turns() -> None:
    order: list[str] = []
    taken = take_turns({name: lambda name=name: order.append(name) for name in "abc"}, 2)  # type: ignore[misc]
    assert order == list("abcabc")
    assert {name: len(readings) for name, readings in taken.readings.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_round_that_was_slow_for_all_does_not_change_the_ratio() -> None:
    taken = Rounds({"gateway": [90.0, 45.0, 91.0], "constant": [100.0, 50.0, 100.0]})
    assert taken.ratio("gateway", "constant", float) == Spread(0.9, 0.9, 0.91)
    assert taken.spread("gateway", float) == Spread(90.0, 45.0, 91.0)


def test_wrk_is_read_with_its_units() -> None:
    assert reading_of(WRK.format(extra="")) == Reading(27742.16, 2.22, 0.987, 83239, 0)


def test_answers_that_are_no_2xx_or_3xx_and_broken_sockets_are_failures() -> None:
    extra = "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 30\n"
    assert reading_of(WRK.format(extra=extra)).failed == 40


def test_a_run_without_a_rate_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no rate"):
        reading_of("unable to connect")


LINE = Line(key="top", what="cached top", of="gateway", against="constant", asked=0.9)


def test_a_row_holds_the_ratio_its_spread_and_both_rates() -> None:
    taken = Rounds({"gateway": [a_reading(92), a_reading(91)], "constant": [a_reading(100), a_reading(100)]})
    row = row_of(LINE, taken, {})
    assert (row.median, row.least, row.most, row.reached) == (0.915, 0.91, 0.92, True)
    assert row.readings == {"gateway": 91.5, "constant": 100}


def test_one_wrong_answer_fails_the_row_whatever_the_ratio() -> None:
    taken = Rounds({"gateway": [a_reading(99, failed=1)], "constant": [a_reading(100)]})
    row = row_of(LINE, taken, {})
    assert row.reached is False
    assert row.cells()[4].startswith("1 answers failed")


def test_a_contender_that_is_missing_is_named_and_nothing_is_said_to_be_reached() -> None:
    row = row_of(LINE, Rounds({"gateway": [a_reading(1)]}), {"constant": "constant: wrk is not installed"})
    assert row.reached is None
    assert row.cells() == ("cached top", "≥ 0.90", "–", "?", "constant: wrk is not installed")


@pytest.mark.parametrize(
    ("asked", "at_most", "median", "reached"),
    [
        (None, False, 0.1, None),
        (0.9, False, 0.9, True),
        (0.9, False, 0.89, False),
        (50.0, True, 50.0, True),
        (50.0, True, 50.1, False),
        (0.9, False, math.nan, False),
    ],
)
def test_reached_is_at_least_or_at_most_what_was_asked(
    asked: float | None, at_most: bool, median: float, reached: bool | None
) -> None:
    assert Row(key="k", what="w", asked=asked, at_most=at_most, median=median).reached is reached


def test_a_row_survives_the_report() -> None:
    row = Row(key="k", what="w", unit="ms", asked=50.0, at_most=True, median=12.3, least=11, most=14)
    assert Row.from_json(row.as_json()) == row
    assert row.cells()[1:4] == ("≤ 50 ms", "12.3 ms (11.00–14.00)", "yes")


def test_the_tables_show_every_row() -> None:
    rows = [Row(key="a", what="first", median=1, least=1, most=1), Row(key="b", what="sec|ond", missing="gone")]
    assert [line.split("  ")[0] for line in as_text(rows).splitlines()] == ["what", "first", "sec|ond"]
    assert as_markdown(rows).splitlines()[-1] == "| sec\\|ond |  | – |  | gone |"


def test_only_what_lies_between_the_markers_is_replaced() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert replaced(document, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter"
    with pytest.raises(ValueError, match="no <!-- bench"):
        replaced("nothing", "new")


def test_the_document_has_a_place_for_the_table() -> None:
    document = (Path(__file__).parents[3] / "docs" / "performance.md").read_text()
    assert replaced(document, "x") != document
    assert replaced(document, "x", begin=scale.BEGIN, end=scale.END) != document


def test_charts_are_drawn_with_what_was_reached_missed_and_only_looked_at(tmp_path: Path) -> None:
    from loadtests.chart import draw_growth, draw_ratios

    rows = [Row(key=str(asked), what="w", asked=asked, median=0.8, least=0.7, most=0.9) for asked in (0.5, 0.9, None)]
    draw_ratios(rows, tmp_path / "ratios.png")
    draw_growth({"MiB": ([1, 10], {"resident": [75.0, 76.0]})}, tmp_path / "growth.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("ratios.png", "growth.png"))


def size_points(huge_ranks: list[float], *, failed: int = 0) -> list[dict[str, float]]:
    """Return the points of two sizes, as a run with ``--huge`` reports them: the small board at 100 ranks/s."""
    ranks = Rounds({"10000": [a_reading(100)] * 3, "10000000": [a_reading(each, failed) for each in huge_ranks]})
    return [{"members": float(name), **scale.size_point(name, "10000", ranks, ranks)} for name in ranks.readings]


def test_ten_million_members_are_a_line_of_the_comparison_with_the_spread_of_their_rounds() -> None:
    row = runs.huge_board(size_points([84, 90, 86]))
    assert (row.what, row.asked) == ("rank at 10,000,000 members against 10,000", 0.85)
    assert (row.median, row.least, row.most, row.reached) == (0.86, 0.84, 0.90, True)
    assert row.readings == {"large": 86, "small": 100}


def test_ten_million_members_are_missing_while_nobody_has_measured_them() -> None:
    for points in ([], size_points([90, 90, 90])[:1], size_points([90, 90, 90])[1:]):
        assert runs.huge_board(points).missing == "not run yet: python -m loadtests.scale --huge"


def test_one_failed_read_of_ten_million_members_is_no_ratio() -> None:
    assert runs.huge_board(size_points([99, 99, 99], failed=1)).reached is False


def test_growth_has_a_row_for_every_size_and_names_the_ratio_of_the_largest() -> None:
    points = size_points([84, 90, 86])
    text = scale.tables({"size": points, "memory": {}, "missing": {}})
    assert [line.split(" | ")[0] for line in text.splitlines()[2:4]] == ["| 10,000", "| 10,000,000"]
    assert "| rank ratio |" in text
    assert "Ranks per second with 10,000,000 members, against 10,000, in turn: 0.86 (0.84–0.90)." in text


def test_steps_that_are_not_run_again_stay_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "scale.json"
    report.write_text(
        '{"at": {"boards": "then"}, "boards": [{"boards": 1, "resident_mib": 60}], "missing": {"size": "x"}}'
    )
    monkeypatch.setattr(scale, "STEPS", {"size": lambda *_: [{"members": 1}], "boards": None})
    told = scale.measured(scale.parsed(["--only", "size", "--report", str(report)]))
    assert (told["size"], told["missing"], told["at"]["boards"]) == ([{"members": 1}], {}, "then")
    assert told["memory"]["one_board_mib"] == 60
