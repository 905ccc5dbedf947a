"""The commands about edges: what they take, what they refuse, their exit status. No edge and no Redis is running."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import main

BASE = """
[redis]
primary = "redis://127.0.0.1:1/0"
[[leaderboards]]
name = "downloads"
key = "lb:downloads"
[[leaderboards]]
name = "laps"
key = "lb:laps"
order = "asc"
[cdn]
dialects = ["varnish", "fastly"]
"""

Said = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(BASE)
    return path


def run(config: Path, *arguments: str) -> int:
    return main([*arguments, "--config", str(config)], {"TOKEN": "s3cr3t-token"})


def test_the_origin_is_where_the_settings_let_the_gateway_listen(config: Path, capsys: Said) -> None:
    config.write_text(BASE + '[server]\nhost = "0.0.0.0"\nport = 9000\n')
    assert run(config, "edge", "nginx") == 0
    assert "server 127.0.0.1:9000;" in capsys.readouterr().out
    config.write_text(BASE + '[server]\nhost = "::1"\n')
    assert run(config, "edge", "nginx", "--listen-h2", "none", "--rate", "0") == 0
    said = capsys.readouterr().out
    assert "server [::1]:8080;" in said
    assert "http2 backlog" not in said


def test_several_gateways_may_stand_behind_one_edge(config: Path, capsys: Said) -> None:
    assert run(config, "edge", "varnish", "--origin", "a.example:80", "--origin", "b.example:81") == 0
    said = capsys.readouterr().out
    assert '.host = "a.example";' in said
    assert '.port = "81";' in said
    assert "gateway.add_backend(gateway_1);" in said


def test_varnish_asks_for_the_secret_that_the_settings_purge_it_with(config: Path, capsys: Said) -> None:
    secret = config.with_name("secret")
    secret.write_text("x")
    config.write_text(f'{BASE}[[cdn.purge]]\nedge = "varnish"\nurl = "http://127.0.0.1:1"\ntoken_file = "{secret}"\n')
    assert run(config, "edge", "varnish") == 0
    assert f'std.fileread("{secret}")' in capsys.readouterr().out


def test_a_certificate_without_its_key_is_refused(config: Path, capsys: Said) -> None:
    assert run(config, "edge", "nginx", "--tls-certificate", "c.pem") == 1
    assert "belong together" in capsys.readouterr().err


def test_a_purge_needs_an_edge(config: Path, capsys: Said) -> None:
    assert run(config, "purge", "downloads") == 1
    assert "[[cdn.purge]]" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--all", "downloads"]])
def test_a_purge_names_its_leaderboards_or_says_all(config: Path, capsys: Said, arguments: list[str]) -> None:
    assert run(config, "purge", *arguments) == 1
    assert "--all" in capsys.readouterr().err


def test_an_edge_that_cannot_be_reached_is_reported_without_a_secret_and_makes_the_status_1(
    config: Path, capsys: Said
) -> None:
    target = '[[cdn.purge]]\nedge = "fastly"\nservice = "SU1Z0"\nurl = "http://127.0.0.1:1"\nattempts = 1\n'
    config.write_text(f'{BASE}{target}token_variable = "TOKEN"\n')
    for arguments in (["downloads", "--period", "2026-W12"], ["--all"]):
        assert run(config, "purge", *arguments) == 1
        said = capsys.readouterr()
        assert "fastly     SU1Z0  NOT purged: not reached (ConnectError) (1 request)" in said.out
        assert "s3cr3t" not in said.out + said.err


def test_the_probe_wants_a_board_in_descending_order_that_is_configured(config: Path, capsys: Said) -> None:
    assert run(config, "probe", "laps") == 1
    assert "descending" in capsys.readouterr().err
    assert run(config, "probe", "nowhere") == 1
    assert "No configured leaderboard" in capsys.readouterr().err


def test_the_probe_wants_a_rate_and_a_time(config: Path, capsys: Said) -> None:
    assert run(config, "probe", "downloads", "--rate", "0") == 1
    assert "--rate" in capsys.readouterr().err


def test_without_redis_the_probe_says_so_in_one_line(config: Path, capsys: Said) -> None:
    assert run(config, "probe", "downloads", "--seconds", "1") == 1
    said = capsys.readouterr().err
    assert said.startswith("probe: ")
    assert said.count("\n") == 1
