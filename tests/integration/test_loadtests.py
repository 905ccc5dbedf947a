"""The load tests, shortened, as they are run: each ends with its verdict, and the ways to be deceived are caught.

Nothing here asserts how fast anything is; what is asserted about time is that a pause is seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests import reads
from loadtests.answers import Prepared
from loadtests.config import GatewayConfig
from loadtests.setup import ROOT, Served, Setup

pytestmark = pytest.mark.xdist_group("loadtests")

BODY = b'{"entries":[{"rank":1,"member":"ann","score":3}]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
OK = Prepared(200, HEADERS, BODY)
AWAY = Prepared(503, HEADERS, BODY)


@pytest.fixture(scope="module")
def setup() -> Iterator[Setup]:
    with Setup(replicas=1) as made:
        yield made


@pytest.fixture(scope="module")
def gateway(setup: Setup) -> Served:
    """A gateway over one board of 2,000 members."""
    setup.board("small", 2000)
    return setup.gateway(GatewayConfig(boards=["small"]))


def run(*command: str) -> tuple[int, str]:
    """Run a module of the load tests as a user does; return its exit status and all it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


def locust(name: str, host: str, folder: Path, *more: str) -> tuple[int, str, dict[str, Any]]:
    """Run one suite headless; return its exit status, output and report."""
    report = folder / "report.json"
    # fmt: off
    status, output = run("locust", "-f", f"loadtests/{name}.py", "--headless", "--only-summary", "--host", host,
                         "--report", str(report), "--html", str(folder / "report.html"), *more)
    # fmt: on
    assert report.exists(), output
    return status, output, json.loads(report.read_text())


def members_file(folder: Path, count: int) -> str:
    path = folder / "members.json"
    path.write_text(json.dumps({"board": [[f"zq-member-{number}", 0] for number in range(count)]}))
    return str(path)


def test_game_clients_run_against_any_gateway_and_learn_from_it(gateway: Served, tmp_path: Path) -> None:
    status, output, report = locust("game_client", gateway.url, tmp_path, "--seconds", "2", "--users", "20")
    assert status == 0, output
    assert "verdict game_client: PASSED" in output
    assert {reads.TOP, reads.TOP_CONDITIONAL} <= set(report["routes"])
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_g1_a_server_that_stands_still_shows_in_the_percentiles(setup: Setup, tmp_path: Path) -> None:
    """400 reads a second for 4 s over 4 connections, the server stopped for 1.5 s: a third of the reads felt it.

    Four clients that wait for their answers would have sent four requests into the pause.
    """
    endpoint = setup.constant(("", OK))
    pausing = threading.Thread(target=pause, args=(endpoint, tmp_path / "over", 1.5))
    pausing.start()
    # fmt: off
    status, output, report = locust(
        "mixed_10k", endpoint.url, tmp_path, "--rate", "400", "--seconds", "4", "--connections", "4",
        "--members", members_file(tmp_path, 10), "--calibrating",
    )
    # fmt: on
    (tmp_path / "over").touch()
    pausing.join()
    assert status == 0, output
    assert sum(route["requests"] for route in report["routes"].values()) == 1600
    assert report["kept_share"] > 0.99
    assert all(route["p99_ms"] > 500 for name, route in report["routes"].items() if name != reads.NEIGHBORS)
    assert min(answered / asked for _, asked, answered in report["seconds"]) < 0.6, "1.5 s cover half a second's reads"


def pause(endpoint: Served, over: Path, seconds: float) -> None:
    """Stop a server for a while, once the load is under way (or over)."""
    before = bytes_read(endpoint)
    while bytes_read(endpoint) < before + 10_000 and not over.exists():
        time.sleep(0.02)
    os.kill(endpoint.process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(endpoint.process.pid, signal.SIGCONT)


def bytes_read(served: Served) -> int:
    """Return how many bytes a process has read so far, those of its clients' requests among them."""
    first_line = Path(f"/proc/{served.process.pid}/io").read_text().splitlines()[0]
    return int(first_line.removeprefix("rchar: "))


def test_g2_a_rate_that_the_generator_was_not_seen_to_reach_is_no_result(setup: Setup, tmp_path: Path) -> None:
    endpoint = setup.constant(("", OK))
    more = ("--rate", "100", "--seconds", "1", "--members", members_file(tmp_path, 1))
    status, output, report = locust("cdn_pull", endpoint.url, tmp_path, *more, "--calibrated", "120")
    assert (status, report["outcome"]) == (3, "void")
    assert "verdict cdn_pull: VOID (the generator alone reaches 120/s" in output


def test_g4_failures_of_many_members_are_a_row_a_route(setup: Setup, tmp_path: Path) -> None:
    """2,000 distinct members, every one of them refused, over two generator processes."""
    endpoint = setup.constant(("/top", OK), ("", AWAY))
    more = ("--rate", "1000", "--seconds", "2", "--processes", "2", "--users", "2", "--spawn-rate", "2")
    members = members_file(tmp_path, 2000)
    status, output, report = locust(
        "mixed_10k", endpoint.url, tmp_path, *more, "--members", members, "--calibrated", "9e9"
    )
    assert status in {1, 3}, output  # 3 where the machine is too busy for the rate
    assert set(report["routes"]) == set(reads.ROUTES)
    assert {name: route["failures"] for name, route in report["routes"].items() if route["failures"]} == {
        reads.RANK: {"status 503": report["routes"][reads.RANK]["requests"]},
        reads.NEIGHBORS: {"status 503": report["routes"][reads.NEIGHBORS]["requests"]},
    }
    assert "zq-member" not in output
    assert "zq-member" not in (tmp_path / "report.html").read_text()


def test_a_scenario_sets_up_calibrates_loads_and_counts(tmp_path: Path) -> None:
    # fmt: off
    _, output = run("loadtests.run", "mixed_10k", "--rate", "200", "--seconds", "3", "--members", "2000",
                    "--reports", str(tmp_path))
    # fmt: on
    report = json.loads((tmp_path / "mixed_10k.json").read_text())
    assert "calibration: the generator alone reaches at least 320/s" in output
    assert report["calibrated_rate"] > 300
    assert {name: route["failures"] for name, route in report["routes"].items()} == {name: {} for name in reads.ROUTES}
    assert report["range_commands"]["per_ttl"] <= 1.0, output
    assert "verdict mixed_10k: " in output


def test_an_outage_costs_no_read_of_the_top(setup: Setup, gateway: Served, tmp_path: Path) -> None:
    pids = ",".join(str(node.process.pid) for node in setup.nodes.all)
    more = ("--rate", "200", "--seconds", "6", "--freeze", pids, "--calibrated", "9e9")
    _, output, report = locust("outage", gateway.url, tmp_path, *more)
    routes = report["routes"]
    assert (routes[reads.TOP]["failures"], routes[reads.TOP_CONDITIONAL]["failures"]) == ({}, {}), output
    assert set(routes[reads.RANK]["failures"]) <= {"status 503", "status 504"}
    assert routes[reads.RANK]["failures"], "Redis was frozen, and no rank failed: nothing was tested"


def test_a_soak_finds_ranks_right_nothing_grown_and_nothing_unexpected_said(tmp_path: Path) -> None:
    # fmt: off
    status, output = run("loadtests.soak", "--minutes", "0.25", "--fault-s", "4", "--away-s", "1", "--rate", "150",
                         "--members", "2000", "--workers", "1", "--report", str(tmp_path / "soak.json"))
    # fmt: on
    report = json.loads((tmp_path / "soak.json").read_text())
    assert status == 0, output
    assert report["right_share"] >= 0.9999
    assert any(fault.startswith("failover") for fault in report["faults"])
    assert "verdict soak: PASSED" in output


def test_the_comparison_names_what_was_asked_and_reached(tmp_path: Path) -> None:
    """nginx as shipped, nginx with a file and the gateway's own script in webdis; a constant endpoint for the 304."""
    lines = [part for line in ("nginx", "rank_webdis", "conditional") for part in ("--only", line)]
    # fmt: off
    status, output = run("loadtests.bench", "--rounds", "1", "--seconds", "1", "--members", "2000", *lines,
                         "--report", str(tmp_path / "bench.json"))
    # fmt: on
    rows = {row["key"]: row for row in json.loads((tmp_path / "bench.json").read_text())["rows"]}
    assert set(rows) == {"nginx", "rank_webdis", "conditional"}
    assert {key: (row["missing"], row["failed"]) for key, row in rows.items()} == dict.fromkeys(rows, ("", 0)), output
    assert all(row["median"] > 0 for row in rows.values())
    assert status == (1 if any(row["reached"] is False for row in rows.values()) else 0)


def test_growth_is_measured_and_tabled(tmp_path: Path) -> None:
    # fmt: off
    status, output = run("loadtests.scale", "--only", "boards", "--boards", "20", "--rounds", "1", "--seconds", "1",
                         "--report", str(tmp_path / "scale.json"))
    # fmt: on
    report = json.loads((tmp_path / "scale.json").read_text())
    assert status == 0, output
    assert [point["boards"] for point in report["boards"]] == [20]
    assert report["boards"][0]["resident_mib"] > 20
    assert "| boards | resident mib | top per s |" in output


def test_nothing_is_left_behind_by_a_run_that_is_ended(tmp_path: Path) -> None:
    """SIGTERM in the middle of a run: its servers end, its folder goes."""
    command = [sys.executable, "-m", "loadtests.scale", "--only", "connections", "--report", str(tmp_path / "r.json")]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while len(living_in(temporary)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        there = living_in(temporary)
        running.terminate()
        running.wait(60)
    assert len(there) >= 3, "a primary, a replica and the gateway"
    assert list(temporary.iterdir()) == []
    assert living_in(temporary) == []


def living_in(folder: Path) -> list[str]:
    """Return the processes that live in this folder, or were started with a file of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = process.joinpath("cmdline").read_text(errors="replace") + str(process.joinpath("cwd").readlink())
        except OSError:
            continue
        if str(folder) in told:
            found.append(told)
    return found
