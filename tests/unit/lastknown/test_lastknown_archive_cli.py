"""The archive command: what it lists, and what it refuses before Redis is asked for anything."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pytest

from gateway import archive_cli
from gateway.clock import SystemClock
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import Name
from gateway.settings import Settings, load
from tests.fakes import FakeClock

SETTINGS = """
[redis]
primary = "redis://127.0.0.1:1/0"
[last_known]
store = "{store}"
[[leaderboards]]
name = "cup"
key = "lb:cup:<period>"
[[leaderboards.seasons]]
label = "spring"
start = "2026-03-01"
end = "2026-06-01"
[[leaderboards.seasons]]
label = "summer"
start = "2026-06-01"
end = "2026-09-01"
[[leaderboards]]
name = "ever"
key = "lb:ever"
"""


def settings(folder: Path, *, store: str = "") -> Settings:
    file = folder / "gateway.toml"
    file.write_text(SETTINGS.format(store=store or f"file://{folder}/kept"))
    return load(str(file), {})


def run(line: list[str], given: Settings, clock: FakeClock | None = None) -> int:
    parser = argparse.ArgumentParser()
    archive_cli.add_parser(parser.add_subparsers(dest="command"))
    clock = clock or FakeClock(wall=1_780_272_000.0 + 60)  # 2026-06-01T00:01:00Z
    return archive_cli.run(parser.parse_args(["archive", *line]), given, clock)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["rebuild", "cup", "--period", "summer"], "cup summer is final at 2026-09-01T00:10:00Z"),
        (["rebuild", "cup", "--period", "previous"], "cup spring is final at 2026-06-01T00:10:00Z"),
        (["rebuild", "cup", "--period", "autumn"], "no season of that name"),
        (["rebuild", "ever", "--period", "spring"], "has no periods"),
        (["rebuild", "nobody", "--period", "spring"], "No configured leaderboard has this name"),
        (["rebuild", "cup"], "rebuild needs a leaderboard and --period"),
        (["rebuild"], "rebuild needs a leaderboard and --period"),
    ],
)
def test_what_cannot_be_rebuilt_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: list[str], says: str
) -> None:
    assert run(line, settings(tmp_path)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err


def test_without_a_store_nothing_is_archived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"], settings(tmp_path, store="none")) == 1
    assert 'store is "none"' in capsys.readouterr().err


def test_finished_periods_are_listed_by_board_with_tabs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = settings(tmp_path)
    assert run(["list"], given) == 0
    assert capsys.readouterr() == ("", "archive: nothing is archived yet\n")
    store = open_store(given.last_known.store, clock=SystemClock())
    assert store is not None
    for name in (Name("archive", "cup", "spring"), Name("archive", "a/b", "2026-W12"), Name("last", "cup", "summer")):
        asyncio.run(store.put(name, b"", 1_780_272_600.0))
    assert run(["list"], given) == 0
    printed = capsys.readouterr().out
    assert printed == "a/b\t2026-W12\t2026-06-01T00:10:00Z\ncup\tspring\t2026-06-01T00:10:00Z\n"
    assert run(["list", "cup"], given) == 0
    assert capsys.readouterr().out == "cup\tspring\t2026-06-01T00:10:00Z\n"


def test_a_store_that_fails_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(["list"], settings(tmp_path, store=f"file://{tmp_path}/file/kept")) == 1
    assert capsys.readouterr().err.startswith("archive: ")
