"""The load tests, shortened, as they are run: each ends with its verdict, and the ways to be deceived are caught.

Nothing here asserts how fast anything is, nor fails because it was slow: a read that a busy machine left unanswered,
or that ran out of its budget, is told from one that was answered wrongly. What is asserted about time is that a pause
is seen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtests import reads
from loadtests.answers import Prepared
from loadtests.config import GatewayConfig
from loadtests.driver import UNANSWERED
from loadtests.programs import until
from loadtests.setup import ROOT, Served, Setup, prepared
from tests.servers import eventually

HANGS_S = 300
"""Longer than any of these runs takes on a machine that does other things besides."""

pytestmark = [pytest.mark.xdist_group("loadtests"), pytest.mark.timeout(HANGS_S + 60)]

BODY = b'{"entries":[{"rank":1,"member":"ann","score":3}]}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
OK = Prepared(200, HEADERS, BODY)
AWAY = Prepared(503, HEADERS, BODY)

LATE = {UNANSWERED, "status 503", "status 504"}
"""How reads fail that are only too slow; a wrong, broken or unreadable answer is none of these."""


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
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False
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


def reasons_of(routes: Mapping[str, Any], *names: str) -> set[str]:
    """Return why reads of these routes (none: of all) failed."""
    return {reason for name in names or routes for reason, count in routes[name]["failures"].items() if count}


def answered(route: Mapping[str, Any]) -> int:
    return int(route["requests"] - sum(route["failures"].values()))


def members_file(folder: Path, count: int) -> str:
    path = folder / "members.json"
    path.write_text(json.dumps({"board": [[f"zq-member-{number}", 0] for number in range(count)]}))
    return str(path)


def test_game_clients_run_against_any_gateway_and_learn_from_it(gateway: Served, tmp_path: Path) -> None:
    more = ("--seconds", "6", "--users", "20", "--spawn-rate", "20")
    status, output, report = locust("game_client", gateway.url, tmp_path, *more)
    assert reasons_of(report["routes"]) <= LATE, output
    assert all(answered(report["routes"][name]) for name in (reads.TOP, reads.TOP_CONDITIONAL)), output
    assert f"verdict game_client: {report['outcome'].upper()}" in output
    assert status == {"passed": 0, "failed": 1, "void": 3}[report["outcome"]]
    assert report["outcome"] == "passed" or reasons_of(report["routes"]) or "generator" in str(report["reasons"])
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
    assert reasons_of(report["routes"]) <= {UNANSWERED}, "what is late is not lost"
    assert all(route["p99_ms"] > 500 for name, route in report["routes"].items() if name != reads.NEIGHBORS)
    assert min(answered / asked for _, asked, answered in report["seconds"]) < 0.6, "1.5 s cover half a second's reads"


def pause(endpoint: Served, over: Path, seconds: float) -> None:
    """Stop a server for a while, once the load is under way (or over)."""
    before = bytes_read(endpoint)
    while bytes_read(endpoint) < before + 2_000 and not over.exists():
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
    assert "verdict cdn_pull: VOID (" in output
    assert "the generator alone reaches 120/s, less than 1.5 times the claimed 100/s" in report["reasons"]


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
    refused = (report["routes"][name] for name in (reads.RANK, reads.NEIGHBORS))
    assert all(answered(route) == 0 and route["failures"]["status 503"] for route in refused)
    assert reasons_of(report["routes"], reads.RANK, reads.NEIGHBORS) <= {"status 503", UNANSWERED}
    assert reasons_of(report["routes"], reads.TOP, reads.TOP_CONDITIONAL) <= {UNANSWERED}
    assert "zq-member" not in output
    assert "zq-member" not in (tmp_path / "report.html").read_text()


def test_a_scenario_sets_up_calibrates_loads_and_counts(tmp_path: Path) -> None:
    began = time.monotonic()
    # fmt: off
    _, output = run("loadtests.run", "mixed_10k", "--rate", "200", "--seconds", "3", "--members", "2000",
                    "--reports", str(tmp_path))
    # fmt: on
    most_ttls = time.monotonic() - began + 1  # of a second each, the load being a part of all this
    report = json.loads((tmp_path / "mixed_10k.json").read_text())
    routes, ranges = report["routes"], report["range_commands"]
    assert f"calibration: the generator alone reaches at least {report['calibrated_rate']:,.0f}/s" in output
    assert report["calibrated_rate"] <= 320, "no more was asked of it"
    assert (report["calibrated_rate"] < 300) == any("the generator alone" in reason for reason in report["reasons"])
    assert set(routes) == set(reads.ROUTES)
    assert reasons_of(routes) <= LATE, output
    assert all(answered(route) for route in routes.values()), output
    assert all(routes[name]["server_p50_ms"] for name in (reads.TOP, reads.RANK)), "the server's own medians are read"
    assert ranges["top"] == ranges["all"] - answered(routes[reads.NEIGHBORS])
    # One read a TTL, each of them tried again at most once; so may neighbors be, and those that failed count here, too.
    assert 1 <= ranges["top"] <= 2 * most_ttls + 2 * routes[reads.NEIGHBORS]["requests"], output
    assert "verdict mixed_10k: " in output


def test_an_outage_costs_no_read_of_the_top(setup: Setup, gateway: Served, tmp_path: Path) -> None:
    until(lambda: prepared(gateway.url, reads.top_target("small")).status == 200, "a top to go on with")
    pids = ",".join(str(node.process.pid) for node in setup.nodes.all)
    more = ("--rate", "200", "--seconds", "9", "--freeze", pids, "--calibrated", "9e9")
    _, output, report = locust("outage", gateway.url, tmp_path, *more)
    routes = report["routes"]
    assert reasons_of(routes, reads.TOP, reads.TOP_CONDITIONAL) <= {UNANSWERED}, output
    assert reasons_of(routes, reads.RANK) <= LATE, output
    away = reasons_of(routes, reads.RANK) - {UNANSWERED}
    assert away, "Redis was frozen, and no rank failed: nothing was tested"


SLOW = "|".join(
    (
        r"the load reached \S+ of its rate, .*",
        r"\S+ of ranks were answered right, .*",  # of a thousand: one late read is too many; the reasons are looked at
        r"\d+ reads of the top failed",  # likewise
        r"\d+ samples are too few .*",
        r"(tasks|flights) grew .*",  # where reads pile up
    )
)
FAULTS = ("primary .* promoted", "replica .* frozen", "failover .*", "replica .* killed and started again")


def test_a_soak_finds_ranks_right_nothing_grown_and_nothing_unexpected_said(tmp_path: Path) -> None:
    """Four faults in 24 s, the first of them a primary killed; a slow machine may not get through all."""
    # fmt: off
    status, output = run("loadtests.soak", "--minutes", "0.4", "--fault-s", "5", "--away-s", "1", "--rate", "150",
                         "--members", "2000", "--workers", "1", "--report", str(tmp_path / "soak.json"))
    # fmt: on
    report = json.loads((tmp_path / "soak.json").read_text())
    assert [reason for reason in report["reasons"] if not re.fullmatch(SLOW, reason)] == [], output
    assert reasons_of(report["routes"]) <= LATE, output
    assert all(answered(report["routes"][name]) for name in reads.ROUTES), output
    assert report["faults"], output
    assert all(re.fullmatch(what, fault) for what, fault in zip(FAULTS, report["faults"], strict=False)), output
    assert f"verdict soak: {report['outcome'].upper()}" in output
    assert (status, report["outcome"]) == ((1, "failed") if report["reasons"] else (0, "passed"))


def test_the_comparison_names_what_was_asked_and_reached(tmp_path: Path) -> None:
    """nginx as shipped, nginx with a file and the gateway's own script in webdis; a constant endpoint for the 304."""
    lines = [part for line in ("nginx", "rank_webdis", "conditional") for part in ("--only", line)]
    # fmt: off
    status, output = run("loadtests.bench", "--rounds", "1", "--seconds", "1", "--members", "2000", *lines,
                         "--report", str(tmp_path / "bench.json"))
    # fmt: on
    rows = {row["key"]: row for row in json.loads((tmp_path / "bench.json").read_text())["rows"]}
    assert set(rows) == {"nginx", "rank_webdis", "conditional"}
    assert {key: row["missing"] for key, row in rows.items()} == dict.fromkeys(rows, ""), output
    # Some reads of a second may outlast a time-out; an edge or a script that answers wrongly fails all of them.
    assert all(row["failed"] < sum(row["readings"].values()) / 2 for row in rows.values()), output
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
    eventually(lambda: not living_in(temporary), what="all have ended")


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
