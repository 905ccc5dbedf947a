"""What is set up is what was meant: a configuration the gateway takes, rows like the demo's, one nginx worker."""

from __future__ import annotations

import argparse
import math
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from gateway import settings
from loadtests import metrics, run, runs
from loadtests.answers import Prepared, load, save
from loadtests.config import GatewayConfig
from loadtests.edges import one_worker
from loadtests.nodes import Node, Nodes, batched_rows
from loadtests.programs import Missing, program
from loadtests.rows import member, rows, score
from loadtests.run import demo_rows
from loadtests.scale import memory_of, table
from loadtests.table import Row

ROOT = Path(__file__).parents[3]


def two_nodes() -> Nodes:
    process = subprocess.Popen(["true"])
    process.wait()
    return Nodes(Node(7000, process), [Node(7001, process)])


def test_the_gateway_takes_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    config = GatewayConfig(boards=["a", "b"], workers=2, board={"ttl_ms": 500}, tables={"cdn": {"dialects": ["nginx"]}})
    path.write_text(config.text(two_nodes(), 8123, 9123))
    taken = settings.load(path, {})
    assert [(board.name, board.key, board.ttl_s) for board in taken.boards] == [("a", "lb:a", 0.5), ("b", "lb:b", 0.5)]
    assert (taken.server.port, taken.server.workers) == (8123, 2)
    assert taken.redis.primary == "redis://127.0.0.1:7000/0"


def test_with_a_sentinel_the_nodes_are_not_named(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(GatewayConfig(boards=["a"], sentinel_port=26379).text(two_nodes(), 8123, 9123))
    taken = settings.load(path, {})
    assert (taken.redis.primary, taken.redis.service) == (None, "leaderboards")


def test_synthetic_rows_are_as_long_as_the_demos() -> None:
    best = sorted(rows(100_000), key=lambda row: -row[1])[:100]
    demo = demo_rows()[:100]
    lengths = [sum(len(name) + len(str(points)) for name, points in part) / 100 for part in (best, demo)]
    assert abs(lengths[0] - lengths[1]) <= 2


def test_no_two_rows_share_a_member_or_a_score_and_they_come_in_no_order() -> None:
    board = list(rows(50_000))
    assert len(dict(board)) == len({points for _, points in board}) == 50_000
    rises = sum(one[1] < other[1] for one, other in pairwise(board))
    assert 10_000 < rises < 40_000
    assert board[7] == (member(7), score(7))


def test_rows_are_grouped_without_losing_any() -> None:
    assert [len(group) for group in batched_rows(rows(1001), 500)] == [500, 500, 1]


def test_prepared_answers_survive_their_file(tmp_path: Path) -> None:
    answer = Prepared(200, [(b"etag", b'W/"\xe9"')], b"\x00\xff")
    save(tmp_path / "answers.json", {"": answer})
    assert {key: Prepared(a.status, list(a.headers), a.body) for key, a in load(tmp_path / "answers.json").items()} == {
        "": answer
    }


def test_the_shipped_nginx_runs_with_one_worker_in_a_comparison() -> None:
    shipped = (ROOT / "nginx.conf").read_text()
    assert "worker_processes 1;" in one_worker(shipped)
    with pytest.raises(ValueError, match="worker_processes"):
        one_worker("events {}")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Missing, match="no-such-program is not installed"):
        program("no-such-program")


def test_a_scenario_fills_in_what_was_not_given() -> None:
    options = run.parsed(["mixed_10k", "--rate", "500"])
    assert (options.rate, options.seconds, options.members, options.users) == (500, 60, 1_000_000, 1)


def test_a_closed_loop_is_given_no_rate() -> None:
    options = argparse.Namespace(seconds=5, users=50, rate=None, connections=1)
    line = run.command("game_client", "http://gateway", options)
    assert "--rate" not in line
    assert line[line.index("--users") + 1] == "50"


METRICS = """\
# TYPE gateway_read_duration_seconds histogram
gateway_read_duration_seconds_bucket{le="0.0005",route="top"} 60.0
gateway_read_duration_seconds_bucket{le="0.001",route="top"} 90.0
gateway_read_duration_seconds_bucket{le="+Inf",route="top"} 100.0
# TYPE gateway_worker_tasks gauge
gateway_worker_tasks{worker="0"} 7.0
gateway_worker_tasks{worker="1"} 8.0
"""


def test_the_gateways_own_median_is_read_from_what_grew_since() -> None:
    before = metrics.samples_of(METRICS)
    after = metrics.samples_of(METRICS.replace("60.0", "61.0").replace("90.0", "190.0").replace("100.0", "200.0"))
    assert metrics.median_ms(before, "top") == 0.5
    assert metrics.median_ms(metrics.since(before, after), "top") == 1.0
    assert math.isnan(metrics.median_ms(before, "member"))
    assert metrics.sum_of(before, "gateway_worker_tasks") == 15.0
    assert metrics.sum_of(before, "gateway_worker_tasks", worker="1") == 8.0


def test_memory_is_that_of_one_board_and_what_each_more_adds() -> None:
    points = [{"boards": 1, "resident_mib": 75.0}, {"boards": 1025, "resident_mib": 83.0}]
    assert memory_of(points) == {"one_board_mib": 75.0, "per_board_kib": 8.0}
    assert table(points).splitlines() == [
        "| boards | resident mib |",
        "| ---: | ---: |",
        "| 1 | 75 |",
        "| 1,025 | 83 |",
    ]


def test_runs_that_were_not_made_are_named_with_their_command(tmp_path: Path) -> None:
    found = runs.rows(tmp_path)
    assert {row.missing for row in found} >= {"not run yet: make soak", "not run yet: make load SCENARIO=mixed_10k"}
    assert not any(row.reached for row in found)


def by_key(found: list[Row]) -> dict[str, Row]:
    return {row.key: row for row in found}


def test_a_mixed_run_becomes_its_rows() -> None:
    told = {
        "outcome": "passed",
        "reasons": [],
        "rate_asked": 10_000,
        "kept_share": 0.999,
        "routes": {"top": {"p99_ms": 12.0, "failures": {}}, "rank": {"p99_ms": 120.0, "failures": {}}},
        "range_commands": {"per_ttl": 0.98},
    }
    found = by_key(runs.mixed(told))
    assert {key: row.reached for key, row in found.items()} == {
        "mixed_rate": True,
        "mixed_top": True,
        "mixed_rank": False,
        "mixed_ranges": True,
    }
    void = by_key(runs.mixed(told | {"outcome": "void", "reasons": ["the generator was the limit"]}))
    assert void["mixed_rate"].missing == "void: the generator was the limit"


def test_a_soak_and_a_scale_run_become_their_rows() -> None:
    assert runs.soak({"minutes": 15, "right_share": 0.99995})[0].cells()[1:4] == ("≥ 99.99 %", "99.995 %", "yes")
    memory = runs.scale({"memory": {"one_board_mib": 75.0, "per_board_kib": 17.0}})
    assert {row.key: row.reached for row in memory} == {"size_huge": None, "memory": True, "memory_board": False}
