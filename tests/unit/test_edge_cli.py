"""The commands about edges: what they take, what they refuse, their exit status. No edge and no Redis is running."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import main, parser_for

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


def refused(config: Path, capsys: Said, *arguments: str) -> str:
    """Run a command whose arguments must be refused; return the last line that it says."""
    with pytest.raises(SystemExit) as ended:
        run(config, *arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    return said.err.splitlines()[-1]


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
    assert run(config, "edge", "nginx", "--tls-certificate", "c.pem") == 2
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


@pytest.mark.parametrize("option", ["--rate", "--seconds"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf", "1e308", "x", ""])
def test_the_probe_wants_a_rate_and_a_time_within_bounds(config: Path, capsys: Said, option: str, value: str) -> None:
    assert "must be a number from 0." in refused(config, capsys, "probe", "downloads", f"{option}={value}")


def test_the_probe_wants_to_read_at_least_once(config: Path, capsys: Said) -> None:
    assert run(config, "probe", "downloads", "--rate", "0.1", "--seconds", "1") == 2
    assert "less than one read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "x",
        "",
        "http://",
        "http://[::1",
        "http://\u00e9..x",
        "http://a..b",
        "http://a b",
        f"http://{'a' * 64}",
        "ftp://a",
        "http://a:0",
        "http://a:99999",
        "http://a:x",
        "http://a/?b=c",
        "http://a/#b",
        "http://a\x00",
        "//a",
        "a.example:80",
    ],
)
def test_the_probe_says_at_once_that_an_address_is_none(config: Path, capsys: Said, url: str) -> None:
    assert "must be text such as" in refused(config, capsys, "probe", "downloads", f"--url={url}")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://edge.example/", "https://edge.example"),
        ("http://[::1]:80/a/", "http://[::1]:80/a"),
        ("http://\u00e9.x", None),
    ],
)
def test_the_probe_takes_the_address_of_a_server(url: str, told: str | None) -> None:
    args = parser_for(["probe"]).parse_args(["probe", "downloads", "--config", "x", "--url", url])
    assert args.url == (told or url)


BAD_VALUES = {
    "--rate": ["-5", "1.5", "x", "1000001", ""],
    "--origin": [
        "",
        "a",
        "a b;}",
        "a:0",
        "a:99999",
        "a..b:80",
        "http://a:80",
        "a:80;",
        "[::1:80",
        "1.2.3:80",
        "$host:80",
    ],
    "--listen": ["", "0", "65536", "a b", "8000;", "a..b:80", "unix:a", "unix:/a b", "none"],
    "--listen-h2": ["", "off;", "$port"],
    "--tls-certificate": ["", "a b", "a;", "$ssl_server_name"],
    "--tls-key": ["", 'a"', "a\nb"],
    "--state-dir": ["", "$uri", "/a b", "/a;", "/a{", "/a'", "/a#b", "/a\\", "/a\n"],
    "--access-log": ["", "a b", "$uri", "off;"],
    "--trusted-proxy": ["", "a b", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.300", "a/8", "::1%eth0", "all;"],
    "--purge-from": ["", 'a"', "10.0.0.0/x", "unix:", "!a"],
    "--purge-secret-file": ["", '/a"', "/a\n", "/a b"],
}


@pytest.mark.parametrize("edge", ["nginx", "varnish"])
@pytest.mark.parametrize("option", BAD_VALUES)
def test_a_value_that_would_break_the_configuration_is_refused(
    config: Path, capsys: Said, edge: str, option: str
) -> None:
    for value in BAD_VALUES[option]:
        assert " must be a" in refused(config, capsys, "edge", edge, f"{option}={value}")


def test_values_that_an_edge_takes_are_given_to_it(config: Path, capsys: Said) -> None:
    options = ["--listen", "*:80", "--listen-h2", "[::]:81", "--state-dir", "/a/b-c_d.e/", "--access-log", "off"]
    options += ["--trusted-proxy", "10.1.2.3/8", "--trusted-proxy", "unix:", "--trusted-proxy", "lb.example"]
    assert run(config, "edge", "nginx", *options, "--origin", "[::1]:8080", "--origin", "my_gateway:80") == 0
    said = capsys.readouterr().out
    for line in ("listen *:80 ", "listen [::]:81 ", "access_log off", "server [::1]:8080;", "server my_gateway:80;"):
        assert line in " ".join(said.split())
    for proxy in ("10.0.0.0/8", "unix:", "lb.example"):
        assert f"set_real_ip_from  {proxy};" in said


def test_a_gateway_whose_settings_do_not_say_where_it_is_needs_an_origin(config: Path, capsys: Said) -> None:
    config.write_text(BASE + "[server]\nport = 0\n")
    assert run(config, "edge", "nginx") == 2
    assert "--origin HOST:PORT" in capsys.readouterr().err
    assert run(config, "edge", "nginx", "--origin", "a:80") == 0


def test_a_secret_s_file_that_the_configuration_cannot_name_is_refused_for_varnish_alone(
    config: Path, capsys: Said
) -> None:
    secret = config.with_name("a secret")
    secret.write_text("x")
    config.write_text(f'{BASE}[[cdn.purge]]\nedge = "varnish"\nurl = "http://127.0.0.1:1"\ntoken_file = "{secret}"\n')
    assert run(config, "edge", "varnish") == 2
    assert "--purge-secret-file" in capsys.readouterr().err
    assert run(config, "edge", "nginx") == 0


def test_a_token_that_cannot_be_sent_is_reported(config: Path, capsys: Said) -> None:
    target = '[[cdn.purge]]\nedge = "fastly"\nservice = "SU1Z0"\nurl = "http://127.0.0.1:1"\n'
    config.write_text(f'{BASE}{target}token_variable = "TOKEN"\n')
    assert main(["purge", "downloads", "--config", str(config)], {"TOKEN": "s\u00e9cret"}) == 1
    said = capsys.readouterr()
    assert "fastly     SU1Z0  NOT purged: its token holds characters" in said.out
    assert "s\u00e9cret" not in said.out + said.err


def test_without_redis_the_probe_says_so_in_one_line(config: Path, capsys: Said) -> None:
    assert run(config, "probe", "downloads", "--seconds", "1") == 1
    said = capsys.readouterr().err
    assert said.startswith("probe: ")
    assert said.count("\n") == 1
