"""The demo as a person meets it: one command, a page in a real browser, the lines it prints, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import redis

from tests.browser import Browser
from tests.servers import Process, eventually, free_port
from tests.servers.gateway import ROOT
from tests.servers.redis import binary_path

pytestmark = pytest.mark.xdist_group("demo")

ENTER, TAB = "\ue007", "\ue004"
ODD = [
    "<b>bold</b>",
    "<img src=x onerror=\"document.title='hacked'\">",
    "😀/%2F?a=b#c+d",
    "quote\"'`&amp;",
    " spaces  ",
]


class Demo(Process):
    """The demo in a process of its own, its temporary folder inside one of the test's."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        super().__init__("demo")
        self.arguments, self.env = arguments, env or {}
        self.temporary = self.folder / "tmp"

    def start(self) -> None:
        """Start it, and wait until it has said what to open."""
        self.begin()
        self.wait_until(lambda: "Ctrl-C ends all of it." in self.said(), within_s=60)

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        self.temporary.mkdir(exist_ok=True)
        environment = dict(os.environ) | {"TMPDIR": str(self.temporary)} | self.env
        command = [sys.executable, "-m", "gateway", "demo", "--port", "0", *self.arguments]
        self.spawn(command, cwd=ROOT, env=environment)

    def said(self) -> str:
        return self.stdout.read_text() if self.stdout.exists() else ""

    @property
    def url(self) -> str:
        [found] = re.findall(r"Look +(\S+)/demo", self.said())
        return str(found)

    @property
    def redis(self) -> redis.Redis:
        [port] = re.findall(r"redis-cli -p (\d+)", self.said())
        return redis.Redis(port=int(port))

    def json(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def order(self, **what: object) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/demo/control", json.dumps(what).encode(), headers)
        urllib.request.urlopen(request, timeout=30).close()

    def family(self) -> list[psutil.Process]:
        """Return every process below the demo's own: the keeper, three nodes, the gateway and its worker."""
        found: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
        return found

    def assert_nothing_left(self, family: list[psutil.Process]) -> None:
        # The keeper waits for one after the other, six seconds for each.
        eventually(lambda: not any(_runs(process) for process in family), within_s=60, what="all have ended")
        eventually(lambda: not list(self.temporary.iterdir()), within_s=60, what="the folder is gone")


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with Demo() as demo:
        yield demo
        family = demo.family()
        assert demo.terminate(within_s=30) == 0
        demo.assert_nothing_left(family)


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(demo: Demo, window: Browser) -> Browser:
    """Give the page, freshly loaded, with its first rows; Redis runs and scores change."""
    if demo.json("/demo/stats")["state"]["redis"] != "running":
        demo.order(redis="start")
    demo.order(writer=True, crowd=100)
    window.resize(1280, 860)
    window.open(f"{demo.url}/demo")
    window.until(lambda: len(window.texts("#rows .row")) == 100, "the board has 100 rows")
    return window


def tally(page: Browser, outcome: str) -> int:
    return int(page.text(f"[data-outcome={outcome}]").replace(",", ""))


def test_every_line_that_is_printed_to_ask_is_answered(demo: Demo) -> None:
    lines = re.findall(r"curl -\w+ '?([^'\s]+)", demo.said())
    assert len(lines) == 6
    for line in lines:
        with urllib.request.urlopen(line, timeout=10) as answer:
            assert answer.status == 200, line
    assert demo.json("/v1/leaderboards/downloads/members/numpy")["total"] >= 15_000


def test_the_readmes_curl_lines_are_answered(demo: Demo) -> None:
    lines = re.findall(r"^curl .*'http://127\.0\.0\.1:8080(\S+)'$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        assert demo.json(line)["total"] >= 15_000


def test_what_the_parser_refuses_is_answered_as_by_any_gateway(demo: Demo) -> None:
    host, port = demo.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"GET /\xff HTTP/1.1\r\n\r\n")
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


def test_the_board_lives_and_each_poll_is_told(page: Browser) -> None:
    before = page.texts("#rows .row .name, #rows .row .member")
    page.until(lambda: page.texts("#rows .row .member") != before, "members change places")
    page.until(lambda: page.script("return document.querySelectorAll('.moved.shown').length"), "the movement is shown")
    page.until(lambda: page.script("return document.querySelectorAll('.tick.shown').length"), "scores tick")
    page.until(lambda: tally(page, "hit") >= 2, "polls are hits")
    page.until(lambda: "Cache-Status: leaderboard-gateway; hit" in page.text("#wire"), "one is told as it came")
    assert page.texts("#rows .rank") == [str(rank) for rank in range(1, 101)]
    assert page.complaints() == []


def test_while_nothing_changes_polls_are_304_and_the_data_is_young(demo: Demo, page: Browser) -> None:
    demo.order(writer=False)
    page.until(lambda: tally(page, "same") >= 2, "polls are 304")
    page.until(lambda: "304 · 0 bytes" in page.text("#wire"), "one is told as it came")
    page.until(lambda: float(page.text("#age")) < 5, "the data is young, unless the machine stands still")


def test_a_crowd_of_polls_costs_a_handful_of_redis_reads(demo: Demo, page: Browser) -> None:
    demo.order(crowd=500)
    began, first = time.monotonic(), demo.json("/demo/stats")
    page.until(lambda: demo.json("/demo/stats")["polls"] >= first["polls"] + 1000, "a thousand polls were made")
    took_s, last = time.monotonic() - began, demo.json("/demo/stats")
    # One a second, however many poll; each is tried again at most once where a node does not answer in time.
    assert last["redis_reads"] - first["redis_reads"] <= 2 * (took_s + 2)
    assert last["last"]["polls"] == 1000
    page.until(lambda: page.texts("#cost-polls") == ["Last 1,000"], "told")
    page.until(lambda: 0 < int(page.text("#cost").replace(",", "")) <= 2 * (took_s + 4), "the page says so")


def test_a_member_is_found_with_its_neighbors_by_typing_and_by_choosing_its_row(demo: Demo, page: Browser) -> None:
    page.type("#member", "django")
    page.keys(ENTER)
    page.until(lambda: page.texts("#neighbors .self .name") == ["django"], "django is found")
    page.until(lambda: len(page.texts("#neighbors .row")) == 7, "with three above and three below")
    page.until(lambda: "straight from a replica" in page.text("#found"), "it says where from")
    assert page.texts("#announced")[0].startswith("Rank "), "it is read out to those who cannot see it"
    page.script("document.querySelector('#rows button').focus({preventScroll: true})")
    page.keys(ENTER)
    page.until(lambda: page.texts("#neighbors .self .name") == ["boto3"], "the first row's member")
    page.until(
        lambda: page.texts("#neighbors .rank") == ["1", "2", "3", "4"], "cut at the end of the board, not shifted"
    )
    page.type("#member", "nobody-has-this-name")
    page.keys(ENTER)
    page.until(lambda: "is not on this leaderboard" in page.text("#found"), "an absent member")
    page.until(lambda: not page.texts("#neighbors .row"), "which has no neighbors")


def test_odd_members_are_shown_and_found_as_text(demo: Demo, page: Browser) -> None:
    with demo.redis as client:
        client.zadd("lb:downloads", {member: 9e9 - index for index, member in enumerate(ODD)})
        try:
            page.until(lambda: page.texts("#rows .row button")[: len(ODD)] == ODD, "they lead the board")
            for member in ODD:
                page.type("#member", member)
                page.keys(ENTER)
                page.until(lambda member=member: page.texts("#neighbors .self .name") == [member], member)  # type: ignore[misc]
        finally:
            client.zrem("lb:downloads", *ODD)
    client_side = page.script("return [document.title, document.querySelectorAll('main b b, main img').length]")
    assert client_side == ["Downloads · leaderboard gateway demo", 0]


def test_a_member_that_no_path_can_carry_is_asked_for_in_a_batch(page: Browser) -> None:
    page.type("#member", "..")
    page.keys(ENTER)
    page.until(lambda: ".. is not on this leaderboard" in page.text("#found"), "the answer")


def test_redis_is_stopped_and_started_from_the_page_and_the_board_stays(demo: Demo, page: Browser) -> None:
    rows = len(page.texts("#rows .row"))
    page.type("#member", "boto3")
    page.keys(ENTER)
    page.click("#redis")
    page.until(lambda: page.text("#redis") == "Start Redis", "Redis is stopped")
    page.until(lambda: "Redis is away" in page.text("#banner"), "the rows are marked stale")
    page.until(lambda: tally(page, "stale") >= 2, "polls are stale")
    page.until(lambda: "from the last known board" in page.text("#found"), "a leader's rank is still known")
    assert len(page.texts("#rows .row")) == rows
    assert tally(page, "failed") == 0
    page.click("#redis")
    page.until(lambda: page.text("#redis") == "Stop Redis", "Redis runs")
    page.until(lambda: page.text("#banner") == "", "the mark is gone")
    assert demo.json("/v1/leaderboards/downloads")["total"] == 15_000


def test_the_page_fits_a_phone_in_light_and_dark(page: Browser) -> None:
    page.resize(360, 740)
    colors = set()
    for scheme in ("light", "dark"):
        page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert page.script("return document.documentElement.scrollWidth") <= 360
        colors.add(page.script("return getComputedStyle(document.body).backgroundColor"))
    assert len(colors) == 2
    page.click("#theme")
    assert page.script("return getComputedStyle(document.body).backgroundColor") in colors


def test_everything_that_can_be_used_has_a_name_and_is_reached_by_the_keyboard(page: Browser) -> None:
    page.until(lambda: page.script("return !document.querySelector('#controls').hidden"), "the switches are shown")
    tree = page.devtools("Accessibility.getFullAXTree")["nodes"]
    usable = [
        node for node in tree if node["role"]["value"] in ("button", "combobox", "textbox") and not node["ignored"]
    ]
    assert len(usable) > 100
    assert all(node["name"]["value"] for node in usable)
    reached = set()
    page.script("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.script("document.querySelector('#redis').focus()")
    for _ in range(5):
        reached.add(page.script("return document.activeElement.id"))
        page.keys(TAB)
    assert {"redis", "writer", "crowd", "member"} <= reached


def test_ctrl_c_ends_all_of_it_with_status_0() -> None:
    with Demo() as demo:
        family = demo.family()
        assert len(family) == 6
        demo.signal(signal.SIGINT)
        assert demo.terminate(within_s=30) == 0, "a second signal changes nothing"
        demo.assert_nothing_left(family)
        assert demo.stderr.read_text() == ""
        assert demo.said().rstrip().endswith("Stopping …")


def test_a_signal_in_the_middle_of_the_start_leaves_nothing() -> None:
    demo = Demo()
    try:
        demo.begin()
        demo.wait_until(lambda: len(demo.family()) >= 4)
        family = demo.family()
        demo.signal(signal.SIGHUP)
        assert demo.popen is not None
        assert demo.popen.wait(60) == 0
        demo.assert_nothing_left(family)
    finally:
        demo.close()


def test_a_hard_kill_leaves_neither_processes_nor_a_folder() -> None:
    with Demo("--redis", binary_path("6.2")) as demo:
        family = demo.family()
        demo.kill()
        demo.assert_nothing_left(family)


def test_what_keeps_it_from_starting_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    silent = tmp_path / "redis-server"
    silent.write_text("#!/bin/sh\necho 'Fatal: bad configuration'\nexit 1\n")
    silent.chmod(0o755)
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("--port", port): f"Cannot listen on 127.0.0.1 port {port}",
            ("--redis", str(silent)): "redis-server ended at once: Fatal: bad configuration",
            ("--redis", "/nowhere/redis-server"): "is not a program that can be run",
        }
        for arguments, says in cases.items():
            demo = Demo(*arguments)
            try:
                demo.begin()
                assert demo.popen is not None
                assert demo.popen.wait(60) == 1
                [line] = demo.stderr.read_text().splitlines()
                assert line.startswith("demo: ")
                assert says in line
                assert not list(demo.temporary.iterdir())
            finally:
                demo.close()


def test_settings_in_the_environment_do_not_reach_it() -> None:
    with Demo(env={"GATEWAY_REDIS__PRIMARY": "redis://192.0.2.1:6379", "GATEWAY_SERVER__PORT": "1"}) as demo:
        assert demo.json("/v1/leaderboards/downloads")["total"] == 15_000
        with pytest.raises(urllib.error.HTTPError, match="404"):
            demo.json("/demo/nothing")


def test_it_ends_when_its_time_is_over() -> None:
    demo = Demo("--seconds", "0.5")
    try:
        demo.begin()
        assert demo.popen is not None
        assert demo.popen.wait(100) == 0
        assert "Ctrl-C ends all of it." in demo.said()
        assert not list(demo.temporary.iterdir())
    finally:
        demo.close()
