"""The command line: which commands there are, what each is given, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gateway import __version__, cli

GOOD = '[redis]\nprimary = "redis://a"\n[[leaderboards]]\nname = "a"\nkey = "b"\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put a command of our own in place of all others."""
    module = ModuleType("tests.command")
    module.add_parser = lambda commands: commands.add_parser("mine")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests.command", module)
    monkeypatch.setattr(cli, "COMMANDS", {"mine": cli.Command("tests.command", "help"), **cli.COMMANDS})
    return module


def test_a_command_gets_the_settings_and_its_status_is_the_exit_status(command: ModuleType, config: Path) -> None:
    command.run = lambda args, settings: settings.server.port  # type: ignore[attr-defined]
    assert cli.main(["mine", "--config", str(config)], {"GATEWAY_SERVER__PORT": "99"}) == 99


def test_ctrl_c_is_130_without_a_trace(command: ModuleType, config: Path) -> None:
    def run(args: object, settings: object) -> int:
        raise KeyboardInterrupt

    command.run = run  # type: ignore[attr-defined]
    assert cli.main(["mine", "--config", str(config)], {}) == 130


def test_bad_settings_are_listed_and_the_status_is_2(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GOOD + "ttl_ms = -1\ns_maxage = 5\n[server]\nport = 'x'\n")
    assert cli.main(["serve", "--config", str(config)], {}) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "leaderboard-gateway: 3 problem(s) in the settings"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "  server.port",
        "  leaderboards[0].ttl_ms",
        "  leaderboards[0].s_maxage",
    ]
    assert "RFC 9111" in lines[3]


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        ('read_from = "primary"\nfinished = "immutable"\n', "leaderboards[0].finished", "nobody"),
        ("stale_if_error_s = 100000\n", None, ""),
        ('[[cdn.purge]]\nedge = "varnish"\nurl = "http://a"\n', "cdn.purge[0].edge", "dialects"),
    ],
)
def test_what_the_edges_could_not_do_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], command: ModuleType, more: str, path: str | None, says: str
) -> None:
    config.write_text(GOOD + more)
    command.run = lambda args, settings: 0  # type: ignore[attr-defined]
    status = cli.main(["mine", "--config", str(config)], {})
    err = capsys.readouterr().err
    assert status == (2 if path else 0)
    if path:
        assert f"  {path}: " in err
        assert says in err


@pytest.mark.parametrize(
    ("period", "longest"),
    [('period = "daily"', 82_800), ('period = "monthly"', 2_415_600), ('period = "weekly"', 601_200)],
)
def test_a_life_past_the_shortest_period_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], period: str, longest: int
) -> None:
    config.write_text(GOOD.replace('"b"', '"b:<period>"') + f"{period}\nstale_if_error_s = {longest + 1}\n")
    assert cli.main(["serve", "--config", str(config)], {}) == 2
    assert "leaderboards[0].stale_if_error_s: reaches past the period's end" in capsys.readouterr().err
    settings = config.read_text().replace(str(longest + 1), str(longest))
    config.write_text(settings)
    assert cli.settings_of(str(config), {}).boards[0].stale_if_error_s == longest


SEASON = '[[leaderboards.seasons]]\nlabel = "s"\nstart = 2026-01-01T00:00:00Z\nend = 2026-01-01T00:50:00Z\n'


def test_a_life_past_the_shortest_season_is_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(GOOD.replace('"b"', '"b:<period>"') + "edge_ttl_s = 3001\n" + SEASON)
    assert cli.main(["serve", "--config", str(config)], {}) == 2
    err = capsys.readouterr().err
    assert "1 problem(s)" in err
    assert "leaderboards[0].edge_ttl_s: reaches past the period's end: the shortest lasts 3000 s" in err


@pytest.mark.parametrize("end", ["00:50:00Z", "00:00:01Z"])
def test_default_lives_forbid_no_season_however_short(config: Path, end: str) -> None:
    config.write_text(GOOD.replace('"b"', '"b:<period>"') + SEASON.replace("00:50:00Z", end))
    assert cli.settings_of(str(config), {}).boards[0].stale_if_error_s == 3600


@pytest.mark.parametrize("edge_ttl_s", ["-1", '"long"'])
def test_what_is_written_wrong_hides_nothing_that_the_edges_could_not_do(
    config: Path, capsys: pytest.CaptureFixture[str], edge_ttl_s: str
) -> None:
    """Nor does it bring a problem of its own: the mistyped life, kept or not, is past no period's end."""
    config.write_text(
        GOOD.replace('"b"', '"b:<period>"')
        + f"edge_ttl_s = {edge_ttl_s}\nclient_ttl_s = 3001\ntll_ms = 1\n{SEASON}"
        + '[[leaderboards]]\nname = "c"\nkey = "c"\nread_from = "secondary"\nfinished = "immutable"\nmaxage = 1\n'
        + '[[leaderboards]]\nname = "d"\nkey = "d"\nread_from = "primary"\nfinished = "immutable"\norder = 1\n'
        + '[[cdn.purge]]\nedge = "akamai"\n[[cdn.purge]]\nedge = "varnish"\nurl = 1\n'
    )
    assert cli.main(["serve", "--config", str(config)], {}) == 2
    assert {line.split(":")[0].strip() for line in capsys.readouterr().err.splitlines()[1:]} == {
        "leaderboards[0].edge_ttl_s",
        "leaderboards[0].tll_ms",
        "leaderboards[0].client_ttl_s",
        "leaderboards[1].read_from",
        "leaderboards[1].maxage",
        "leaderboards[2].order",
        "leaderboards[2].finished",
        "cdn.purge[0].edge",
        "cdn.purge[1].url",
        "cdn.purge[1].edge",
    }


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"], {})
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: leaderboard-gateway {name} " in text
    assert ("--config" in text) == cli.COMMANDS[name].takes_settings


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"], {})
    text = capsys.readouterr().out
    assert all(f"    {name} " in text for name in cli.COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["lod"], ["serve"], ["serve", "--config"], ["--config", "x"]])
def test_a_command_line_that_makes_no_sense_is_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments, {})
    assert ended.value.code == 2
    assert "leaderboard-gateway" in capsys.readouterr().err


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"], {})
    assert capsys.readouterr().out == f"leaderboard-gateway {__version__}\n"


def test_the_parent_of_serve_imports_no_server_no_client_and_no_progress_bar() -> None:
    """The parent only watches: what its workers, ``purge`` and ``load`` need stays out of its memory."""
    code = (
        "import sys; from gateway import cli; cli.parser_for(['serve', '--config', 'x']); import gateway.server.parent;"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'uvicorn', 'httpx', 'rich', 'redis', 'uvloop'})"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30)
    assert ended.stdout == "\n"
