"""``serve`` as processes: workers watched and replaced, numbers summed, signals, ports; a stand-in answers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.servers import Gateway, eventually, free_port
from tests.servers.gateway import ROOT, environment, toml

pytestmark = pytest.mark.xdist_group("serve")

STUB = "tests.integration.serve_stub:build"


class StubGateway(Gateway):
    """The gateway's processes around the stand-in; ``mood`` says how it misbehaves."""

    def __init__(self, mood: str = "well", *, workers: int = 1, drain_s: float = 0, port: int | None = None) -> None:
        server = {"workers": workers} | ({"port": port} if port else {})
        board = {"name": "a", "key": mood}
        super().__init__(
            {"server": server, "redis": {"primary": "redis://127.0.0.1:1"}, "leaderboards": [board]}, drain_s=drain_s
        )

    def start(self) -> None:
        self.begin()
        self.wait_until(self.all_serve)

    def begin(self) -> None:
        """Start without waiting for anything."""
        self.config.write_text(toml(self.settings))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(self.config), "--build", STUB]
        self.spawn(command, cwd=ROOT, env=environment())

    def admin(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(self.admin_url + path, timeout=30) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def all_serve(self) -> bool:
        _, body = self.admin("/readyz")
        return bool(body) and json.loads(body)["workers"]["ready"] == self.settings["server"]["workers"]

    def worker(self) -> int:
        """Return the process id of the worker that answers a new connection."""
        return int(self.get("/pid")[2])

    def workers(self) -> set[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return {int(child) for child in children.split()}

    def answers(self) -> float:
        """Return how many answers to ``/pid`` the workers say they gave; one that is held up says what it said last."""
        return self.metric("gateway_stub_answers_total", path="/pid")

    def errors(self) -> str:
        return self.stderr.read_text()


@pytest.fixture(scope="module")
def pair() -> Iterator[StubGateway]:
    with StubGateway(workers=2) as gateway:
        yield gateway


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_several_workers_share_one_port_and_metrics_sum_over_them() -> None:
    with StubGateway(workers=2) as pair:
        asked = 0
        answered: set[int] = set()
        while len(answered) < 2 and asked < 200:
            answered.add(pair.worker())
            asked += 1
        assert answered == pair.workers()
        eventually(lambda: pair.answers() == asked, what="every answer is counted once")
        assert pair.metric("gateway_workers", state="serving") == 2
        assert pair.metric("gateway_info") == 1
        eventually(lambda: pair.metric("gateway_worker_resident_bytes") > 2**20)


def test_the_public_port_has_no_metrics_and_the_admin_address_answers_only_its_own_pages(pair: StubGateway) -> None:
    assert b"gateway_info" not in pair.get("/metrics")[2]
    status, body = pair.admin("/x")
    assert (status, json.loads(body)["code"]) == (404, "not_found")
    assert json.loads(pair.admin("/livez")[1]) == {"status": "ok"}


def test_a_worker_that_is_killed_is_replaced_and_what_it_counted_stays() -> None:
    with StubGateway(workers=2) as pair:
        for _ in range(20):
            pair.worker()
        eventually(lambda: pair.answers() == 20, what="both have told what they counted")
        victim = min(pair.workers())
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in pair.workers() and pair.all_serve())
        assert pair.answers() == 20
        assert pair.metric("gateway_worker_restarts_total") == 1
        assert "a worker ended and is replaced" in pair.errors()
        assert {pair.worker() for _ in range(50)} <= pair.workers()


def test_a_second_gateway_on_the_port_is_one_clear_line_and_status_1(pair: StubGateway) -> None:
    second = StubGateway(workers=2, port=pair.port)
    with contextlib.closing(second):
        second.begin()
        assert second.popen is not None
        assert second.popen.wait(60) == 1
        assert second.errors() == f"leaderboard-gateway: cannot listen on 127.0.0.1:{pair.port}: the port is in use\n"
    assert pair.all_serve()


def test_hang_up_is_ignored_with_a_line_that_says_what_to_do(pair: StubGateway) -> None:
    pair.signal(signal.SIGHUP)
    eventually(lambda: "SIGHUP is ignored: restart" in pair.errors())
    assert pair.all_serve()


def test_workers_notice_that_their_parent_was_killed() -> None:
    with StubGateway(workers=2) as gateway:
        workers = gateway.workers()
        assert len(workers) == 2
        gateway.kill()
        eventually(lambda: all(map(gone, workers)))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", gateway.port))


@pytest.mark.parametrize("mood", ["cannot be built", "fails to start"])
def test_a_gateway_that_cannot_start_ends_with_status_1_and_the_reason(mood: str) -> None:
    gateway = StubGateway(mood, workers=2)
    with contextlib.closing(gateway):
        gateway.begin()
        assert gateway.popen is not None
        assert gateway.popen.wait(60) == 1
        assert "the gateway cannot start" in gateway.errors()
        assert "no worker can be started; giving up" in gateway.errors()


def test_a_start_that_takes_long_does_not_keep_the_port_silent_and_no_admin_address_is_fine() -> None:
    gateway = StubGateway("hangs at start")
    gateway.settings["server"]["admin"] = "none"
    with contextlib.closing(gateway):
        gateway.begin()
        gateway.wait_until(lambda: gateway.worker() in gateway.workers())
        assert "admin=none" in gateway.errors()
        gateway.stop()


def test_a_number_that_cannot_be_told_stops_nothing() -> None:
    gateway = StubGateway("cannot tell")
    with contextlib.closing(gateway):
        gateway.begin()
        gateway.wait_until(lambda: gateway.worker() in gateway.workers())
        eventually(lambda: gateway.answers() >= 1)
        eventually(lambda: "a report failed" in gateway.errors())
        assert gateway.worker() in gateway.workers()


def test_d12_idle_connections_are_no_load(pair: StubGateway) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(pair.connect())
            client.sendall(b"GET /pid HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        eventually(lambda: pair.metric("gateway_connections") == 300, what="these are counted, and earlier ones closed")
        assert pair.get("/pid")[0] == 200


def answer_on(connection: BinaryIO, send: Callable[[bytes], object]) -> bytes:
    """Ask on an open connection; return the head of the answer, whose body is read."""
    send(b"GET /pid HTTP/1.1\r\nHost: x\r\n\r\n")
    head = b"".join(iter(connection.readline, b"\r\n"))
    connection.read(int(head.partition(b"content-length: ")[2].split()[0]))
    return head


def test_draining_says_not_ready_ends_keep_alive_and_still_accepts_until_a_second_signal() -> None:
    with StubGateway(workers=2, drain_s=120) as gateway, gateway.connect() as kept, kept.makefile("rb") as stream:
        assert b"connection: close" not in answer_on(stream, kept.sendall)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: gateway.get("/readyz")[0] == 503)
        assert gateway.admin("/readyz")[0] == 503
        assert gateway.get("/pid")[0] == 200
        # It may be the other worker's, which hears of the drain a moment later.
        eventually(lambda: b"connection: close" in answer_on(stream, kept.sendall), what="keep-alive ends")
        assert stream.read() == b"", "and the connection ends"
        began = time.monotonic()
        gateway.stop(within_s=60)
        assert time.monotonic() - began < 60, "the drain would last for two minutes"
        assert "a second signal: the drain is over" in gateway.errors()


def test_what_is_in_flight_is_answered_and_what_takes_too_long_is_cut(tmp_path: Path) -> None:
    with StubGateway("hangs at stop") as gateway, gateway.connect() as idle, gateway.connect() as half_sent:
        answers: dict[str, bytes] = {}

        def ask(file: str) -> None:
            with gateway.connect() as client:
                client.sendall(b"GET /slow?%s HTTP/1.1\r\nHost: x\r\n\r\n" % str(tmp_path / file).encode())
                with contextlib.suppress(ConnectionError):
                    answers[file] = client.recv(1000)

        threads = [threading.Thread(target=ask, args=[file]) for file in ("soon", "never")]
        for thread in threads:
            thread.start()
        half_sent.sendall(b"GET /pid HTTP/1.1\r\nHo")
        eventually(lambda: gateway.metric("gateway_connections") == 4)
        eventually(lambda: gateway.metric("gateway_stub_asked_total", path="/slow") == 2, what="both are in flight")
        gateway.signal(signal.SIGTERM)
        with contextlib.suppress(ConnectionResetError):
            assert idle.recv(1) == b"", "the stop has begun"
        (tmp_path / "soon").touch()
        # 3 s for what is in flight, 1.5 s for closing Redis; the stand-in uses up both, and is killed where the machine
        # takes longer than the rest to end a process.
        errors = gateway.stop(status=None)
        for thread in threads:
            thread.join()
        assert answers["soon"].startswith(b"HTTP/1.1 200")
        assert not answers.get("never")
        with contextlib.suppress(ConnectionResetError):
            assert half_sent.recv(1) == b""
        assert "requests were cut requests=1" in errors
        assert gateway.popen is not None
        assert gateway.popen.returncode == int("a worker did not end in time" in errors)


def test_ctrl_c_reaches_the_whole_process_group_and_still_ends_in_order() -> None:
    with StubGateway(workers=2) as gateway:
        for pid in (gateway.pid, *gateway.workers()):
            os.kill(pid, signal.SIGINT)
        assert gateway.popen is not None
        assert gateway.popen.wait(60) == 0
        assert "Traceback" not in gateway.errors()


def test_a_start_says_where_what_and_how_many() -> None:
    with StubGateway() as gateway:
        eventually(lambda: "all workers accept connections workers=1" in gateway.errors())
        first = gateway.errors().splitlines()[0]
        assert f"leaderboard-gateway listens on {gateway.url} version=" in first
        assert f"workers=1 admin={gateway.settings['server']['admin']} leaderboards=1 redis=fixed" in first
        gateway.stop()


@pytest.mark.parametrize(("module", "ends"), [("gateway.server.worker", 1), ("cdn", 1), ("redis.client", 0)])
def test_what_a_module_of_ours_calls_is_not_deprecated_or_its_process_ends(module: str, ends: int) -> None:
    call = f"import warnings; warnings.warn_explicit('close() is aclose()', DeprecationWarning, '', 1, {module!r})"
    ended = subprocess.run([sys.executable, "-c", call], check=False, env=environment(), capture_output=True, text=True)
    assert ended.returncode == ends, ended.stderr
    assert "Invalid" not in ended.stderr


def run(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments, "--config", str(config)]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_bad_settings_are_all_listed_with_status_2(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        '[server]\nport = "x"\n[redis]\nprimary = "redis://a"\n[[leaderboards]]\nname = "a"\nkey = "b"\ns_maxage = 1\n'
    )
    ended = run(config, "serve")
    assert ended.returncode == 2
    assert ended.stdout == ""
    first, *lines = ended.stderr.splitlines()
    assert first == "leaderboard-gateway: 2 problem(s) in the settings"
    assert lines[0].startswith("  server.port: must be a whole number")
    assert lines[1].startswith("  leaderboards[0].s_maxage: cannot be said beside stale-while-revalidate")


def test_an_admin_port_in_use_is_one_clear_line_and_status_1(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        admin = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(
            f'[server]\nport = {free_port()}\nadmin = "{admin}"\n[redis]\nprimary = "redis://a"\n'
            '[[leaderboards]]\nname = "a"\nkey = "b"\n'
        )
        ended = run(config, "serve")
    assert (ended.returncode, ended.stderr) == (
        1,
        f"leaderboard-gateway: cannot listen on {admin}: the port is in use\n",
    )
