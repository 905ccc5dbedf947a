"""The load command against real servers: the three shapes, accounts and TLS, and boards that are never half there."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway import settings as settings_module
from gateway.load import command
from gateway.load.board import TEMPORARY_S, LoadFailed, load_board
from gateway.settings import Settings
from tests.fakes import FakeClock
from tests.servers import Certificates, RedisCluster, RedisGroup, RedisServer, SentinelGroup, eventually
from tests.servers.gateway import toml

pytestmark = pytest.mark.xdist_group("load")

ROWS = [(b"m%d" % number, float(number)) for number in range(3000)]
TEXT = "member,score\r\n" + "".join(f"m{number},{number}\r\n" for number in range(3000))
BOARDS = [
    {"name": "plain", "key": "lb:plain"},
    {"name": "tagged", "key": "lb:{game}:tagged"},
    {"name": "clan-<id>", "key": "lb:clan:<id>"},
    {"name": "daily", "key": "lb:daily:<period>", "period": "daily"},
]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> None:
    server.call("FLUSHALL")


def settings_of(tmp_path: Path, redis_table: dict[str, Any]) -> Settings:
    file = tmp_path / "gateway.toml"
    file.write_text(toml({"redis": redis_table, "leaderboards": BOARDS}))
    return settings_module.load(file, {})


class Loads:
    """Runs the command in this process, with a file of its own."""

    def __init__(self, tmp_path: Path, redis_table: dict[str, Any]) -> None:
        self.file = tmp_path / "scores.csv"
        self.settings = settings_of(tmp_path, redis_table)
        self.clock = FakeClock(wall=datetime(2026, 3, 19, 12, tzinfo=UTC).timestamp())

    def __call__(self, *arguments: str, text: str | bytes = TEXT) -> int:
        self.file.write_bytes(text.encode() if isinstance(text, str) else text)
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        return command.run(parser.parse_args(["load", str(self.file), *arguments]), self.settings, self.clock)


@pytest.fixture
def load(tmp_path: Path, server: RedisServer) -> Loads:
    return Loads(tmp_path, {"primary": server.url})


def board(server: RedisServer, key: str) -> list[tuple[bytes, float]]:
    flat = server.call("ZRANGE", key, 0, -1, "WITHSCORES")
    return [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def test_a_file_takes_the_place_of_a_board_and_its_expiry_stays(
    load: Loads, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.call("ZADD", "lb:plain", 1, "gone")
    server.call("EXPIRE", "lb:plain", 5000)
    assert load("--leaderboard", "plain") == 0
    assert board(server, "lb:plain") == ROWS
    assert 4900 < server.call("TTL", "lb:plain") <= 5000
    assert server.call("KEYS", "*") == [b"lb:plain"]
    said = capsys.readouterr().out
    assert "plain: 3,000 members loaded" in said
    assert "in place of 1." in said
    assert "Scores that others wrote to the board meanwhile are lost." in said


def test_a_board_that_did_not_exist_gets_no_expiry(load: Loads, server: RedisServer) -> None:
    assert load("--leaderboard", "plain", text="ann,inf\nbob,-0\n") == 0
    assert board(server, "lb:plain") == [(b"bob", 0.0), (b"ann", float("inf"))]
    assert server.call("TTL", "lb:plain") == -1


def test_bad_lines_change_nothing_and_are_named_and_skip_bad_loads_the_others(
    load: Loads, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    text = "member,score\nann,1\nbob,nan\nann,2\n" + "x\n" * 30 + "cyd,3\n"
    assert load("--leaderboard", "plain", text=text) == 1
    assert board(server, "lb:plain") == [(b"old", 1.0)]
    said = capsys.readouterr().err
    assert "line 3 has a score that is not a number: 'nan'" in said
    assert "line 4 repeats the member 'ann' of line 2" in said
    assert "and 12 more: lines 23–34" in said
    assert "32 bad lines, 2 good." in said
    assert load("--leaderboard", "plain", "--skip-bad", text=text) == 0
    assert board(server, "lb:plain") == [(b"ann", 1.0), (b"cyd", 3.0)]


@pytest.mark.parametrize("text", ["", "member,score\n", "\ufeff"])
def test_an_empty_file_never_replaces_a_board(load: Loads, server: RedisServer, text: str) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    assert load("--leaderboard", "plain", text=text) == 1
    assert load("--leaderboard", "plain", "--skip-bad", text=text + "bad\n") == 1
    assert board(server, "lb:plain") == [(b"old", 1.0)]


def test_families_and_periods_are_filled_in(load: Loads, server: RedisServer) -> None:
    for arguments in (["clan-red"], ["daily"], ["daily", "--period", "previous"], ["daily", "--period", "2026-01-31"]):
        assert load("--leaderboard", *arguments, text="ann,1\n") == 0
    keys = [b"lb:clan:red", b"lb:daily:2026-01-31", b"lb:daily:2026-03-18", b"lb:daily:2026-03-19"]
    assert sorted(server.call("KEYS", "*")) == keys


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["unknown"], "No configured leaderboard has this name"),
        (["plain", "--period", "2026-01-31"], "period"),
        (["daily", "--period", "soon"], "period"),
    ],
)
def test_a_board_that_is_not_configured_is_refused(
    load: Loads, server: RedisServer, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert load("--leaderboard", *arguments) == 1
    assert says in capsys.readouterr().err
    assert server.call("DBSIZE") == 0


def test_a_key_of_another_type_is_left_alone(
    load: Loads, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.call("HSET", "lb:plain", "a", 1)
    assert load("--leaderboard", "plain") == 1
    assert "holds a hash" in capsys.readouterr().err
    assert server.call("KEYS", "*") == [b"lb:plain"]
    assert server.call("HGETALL", "lb:plain")


def test_whoever_reads_meanwhile_sees_the_old_board_or_the_new_one(server: RedisServer) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        with redis.Redis(port=server.port) as client:
            while not done.is_set():
                seen.add(client.zcard("lb:plain"))

    reader = threading.Thread(target=look)
    with redis.Redis(port=server.port) as client:
        reader.start()
        eventually(lambda: seen, what="the reader reads")
        try:
            load_board(client, b"lb:plain", ROWS + [(b"x%d" % number, 1.0) for number in range(20_000)])
        finally:
            done.set()
            reader.join()
    assert seen <= {1, 23_000}
    assert 1 in seen


def interrupted(server: RedisServer, during: list[Any]) -> Iterator[tuple[bytes, float]]:
    yield from ROWS
    [temporary] = set(server.call("KEYS", "*")) - {b"lb:plain"}
    during += [temporary, server.call("TTL", temporary), board(server, "lb:plain")]
    raise KeyboardInterrupt


def test_ctrl_c_in_the_middle_leaves_the_old_board_and_nothing_else(server: RedisServer) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    during: list[Any] = []
    with redis.Redis(port=server.port) as client, pytest.raises(KeyboardInterrupt):
        load_board(client, b"lb:plain", interrupted(server, during))
    temporary, ttl, old = during
    assert temporary.startswith(b"lb:plain:loading:")
    assert 0 < ttl <= TEMPORARY_S
    assert old == [(b"old", 1.0)]
    assert server.call("KEYS", "*") == [b"lb:plain"]


def test_a_kill_in_the_middle_leaves_a_temporary_key_that_expires(server: RedisServer) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    program = f"""
import os, redis
from gateway.load.board import load_board
def rows():
    yield from ((b"m%d" % number, 1.0) for number in range(1200))
    os.kill(os.getpid(), 9)
load_board(redis.Redis(port={server.port}), b"lb:plain", rows())
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert board(server, "lb:plain") == [(b"old", 1.0)]
    [temporary] = set(server.call("KEYS", "*")) - {b"lb:plain"}
    assert 0 < server.call("TTL", temporary) <= TEMPORARY_S


def test_a_temporary_key_that_lost_rows_is_not_swapped_in(server: RedisServer) -> None:
    server.call("ZADD", "lb:plain", 1, "old")

    def lose(_written: int) -> None:
        for key in server.call("KEYS", "lb:plain:loading:*"):
            server.call("ZREM", key, "m1")

    with redis.Redis(port=server.port) as client, pytest.raises(LoadFailed, match="2999 left"):
        load_board(client, b"lb:plain", ROWS, written=lose)
    assert board(server, "lb:plain") == [(b"old", 1.0)]
    assert server.call("KEYS", "*") == [b"lb:plain"]


def test_a_redis_that_is_full_refuses_the_rows_and_the_board_stays(server: RedisServer) -> None:
    server.call("ZADD", "lb:plain", 1, "old")
    server.call("CONFIG", "SET", "maxmemory", 1)
    try:
        with redis.Redis(port=server.port) as client, pytest.raises(LoadFailed, match="board is unchanged"):
            load_board(client, b"lb:plain", ROWS)
    finally:
        server.call("CONFIG", "SET", "maxmemory", 0)
    assert board(server, "lb:plain") == [(b"old", 1.0)]


def test_redis_away_is_one_sentence(load: Loads, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = Loads(tmp_path, {"primary": "redis://127.0.0.1:1/0"})
    assert away("--leaderboard", "plain") == 1
    assert capsys.readouterr().err.startswith("load: Redis ")


def test_a_cluster_away_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Loads(tmp_path, {"cluster": ["127.0.0.1:1"]})("--leaderboard", "plain") == 1
    assert capsys.readouterr().err.startswith("load: Redis cannot be reached: ")


def test_a_replica_in_place_of_the_primary_is_refused(
    redis_group: RedisGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Loads(tmp_path, {"primary": redis_group.replicas[0].url})
    assert load("--leaderboard", "plain") == 1
    assert "read only replica" in capsys.readouterr().err


def test_an_account_with_exactly_the_commands_of_a_load_suffices_over_tls(
    stack: contextlib.ExitStack, certificates: Certificates, tmp_path: Path
) -> None:
    commands = "+eval +zadd +pexpire +type +zcard +pttl +persist +unlink +rename"
    acl = [f"user loader on >s3cret ~lb:* -@all {commands}"]
    server = stack.enter_context(RedisServer(tls=certificates, password="admin", acl=acl))
    (tmp_path / "password").write_text("s3cret\n")
    account = {"username": "loader", "password_file": str(tmp_path / "password"), "tls_ca_file": str(certificates.ca)}
    load = Loads(tmp_path, {"primary": server.url.replace("127.0.0.1", "localhost"), **account})
    for _ in range(2):
        assert load("--leaderboard", "plain") == 0
    assert board(server, "lb:plain") == ROWS


def test_sentinel_leads_to_the_primary_of_the_moment(stack: contextlib.ExitStack, tmp_path: Path) -> None:
    watcher = ["user watcher on >watch ~* &* -@all +sentinel|master +sentinel|masters +sentinel|replicas +ping"]
    group = stack.enter_context(
        SentinelGroup(
            replicas=1, password="data", sentinel_password="admin", sentinel_acl=watcher, down_after_ms=30_000
        )
    )
    for name in ("data", "watch"):
        (tmp_path / name).write_text(name)
    secrets = {"password_file": str(tmp_path / "data"), "sentinel_password_file": str(tmp_path / "watch")}
    secrets["sentinel_username"] = "watcher"
    load = Loads(tmp_path, {**group.settings, **secrets})
    assert load("--leaderboard", "plain") == 0
    new = group.failover()
    assert load("--leaderboard", "plain", text="ann,1\n") == 0
    assert board(new, "lb:plain") == [(b"ann", 1.0)]


def test_a_cluster_takes_boards_with_and_without_a_hash_tag(stack: contextlib.ExitStack, tmp_path: Path) -> None:
    cluster = stack.enter_context(RedisCluster(node_timeout_ms=30_000))
    load = Loads(tmp_path, cluster.settings)
    for name, key in (
        ("plain", "lb:plain"),
        ("tagged", "lb:{game}:tagged"),
        ("clan-a", "lb:clan:a"),
        ("clan-b", "lb:clan:b"),
    ):
        for _ in range(2):
            assert load("--leaderboard", name) == 0
        assert board(cluster.owner(key), key) == ROWS
    assert sum(node.call("DBSIZE") for node, _ in cluster.shards) == 4


def test_sigterm_ends_a_load_as_ctrl_c_does(
    load: Loads, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "load_board", lambda *_args, **_more: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    assert load("--leaderboard", "plain") == 130
    assert "the board is unchanged" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_file_that_cannot_be_read_is_one_sentence(load: Loads, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["load", "/nowhere.csv", "--leaderboard", "plain"])
    assert command.run(arguments, load.settings, load.clock) == 1
    assert capsys.readouterr().err == "load: /nowhere.csv: No such file or directory\n"


def test_standard_input_is_read_and_a_terminal_sees_progress(tmp_path: Path, server: RedisServer) -> None:
    file, rows = tmp_path / "gateway.toml", tmp_path / "rows.csv"
    file.write_text(toml({"redis": {"primary": server.url}, "leaderboards": BOARDS}))
    rows.write_text(TEXT)
    arguments = [sys.executable, "-m", "gateway", "load", "-", "--leaderboard", "plain", "--config", str(file)]
    leader, follower = os.openpty()
    with (
        rows.open("rb") as given,
        subprocess.Popen(arguments, stdin=given, stdout=subprocess.DEVNULL, stderr=follower) as running,
    ):
        os.close(follower)
        shown = read_all(leader).decode(errors="replace")
    os.close(leader)
    assert running.returncode == 0, shown
    assert "checking" in shown
    assert "loading" in shown
    assert "3000/3000" in shown
    assert board(server, "lb:plain") == ROWS


def read_all(terminal: int) -> bytes:
    """Return what is written to a terminal until nobody has it open: the longer that takes, the more progress."""
    parts = []
    with contextlib.suppress(OSError):  # EIO: the last has closed it
        while part := os.read(terminal, 4096):
            parts.append(part)
    return b"".join(parts)
