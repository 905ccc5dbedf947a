"""Settings that nobody meant to write: each is a problem that says what is right, and none an accident later."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway import cli
from gateway.errors import SettingsError
from gateway.settings import Settings, load, reading
from gateway.settings.hosts import is_host
from gateway.settings.showing import plain, shown

BOARD = '[[leaderboards]]\nname = "a"\nkey = "a"\n'
REDIS = '[redis]\nprimary = "redis://a"\n'
LONG = "a" * 64
DIGITS = "9" * 5000
HEXADECIMAL = f"0x{'f' * 4000}"

Problems = Callable[..., dict[str, str]]


@pytest.fixture
def problems(tmp_path: Path) -> Problems:
    """Load a file; return what is wrong with it. Anything but ``SettingsError`` fails the test."""

    def of(text: str | bytes, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        path = tmp_path / "gateway.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(SettingsError) as caught:
            load(path, environ or {})
        return dict(caught.value.problems)

    return of


def loaded(folder: Path, text: str) -> Settings:
    path = folder / "gateway.toml"
    path.write_text(text)
    return load(path, {})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost.",
        "redis_1",
        "lb-redis_replica-0.lb-redis_headless",
        "bücher.example",
        "xn--bcher-kva.example",
        "a" * 63,
        "127.0.0.1",
        "127.1",
        "0.0.0.0",
        "::",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
    ],
)
def test_what_can_be_asked_for_is_a_host(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "a..b",
        ".",
        ".a",
        "a..",
        LONG,
        f"{LONG}.example",
        "ß" * 40,
        "\u3002",
        "\u2024",
        "xn--é",
        ".".join(["a" * 62] * 5),
        "a" * 100_000,
        "10.0.0.256",
        "1.2.3.4.5",
        "127.0.0.1:80",
        "[::1]",
        "::g",
        "fe80::1%\x1b",
        "a b",
        "a/b",
        "a%2eb",
        "*",
        "a\0b",
        "\udcff",
        "",
    ],
)
def test_what_no_name_server_can_be_asked_for_is_no_host(host: str) -> None:
    assert not is_host(host)


HOST_KEYS = [
    ("redis.primary", '[redis]\nprimary = "redis://{}:6379/0"\n'),
    ("redis.replicas[0]", '[redis]\nprimary = "redis://a"\nreplicas = ["redis://{}"]\n'),
    ("redis.sentinels[0]", '[redis]\nsentinels = ["{}:26379"]\nservice = "s"\n'),
    ("redis.cluster[0]", '[redis]\ncluster = ["{}:7000"]\n'),
    ("server.host", '[server]\nhost = "{}"\n' + REDIS),
    ("server.admin", '[server]\nadmin = "{}:9464"\n' + REDIS),
    ("shared_tier.url", '[shared_tier]\nurl = "redis://u:hunter2@{}:6379/1"\n' + REDIS),
    ("cdn.purge[0].url", '[[cdn.purge]]\nedge = "varnish"\nurl = "http://u:hunter2@{}:6081"\n' + REDIS),
    ("last_known.store", '[last_known]\nstore = "postgresql://u:hunter2@{}:5432/d"\n' + REDIS),
]


@pytest.mark.parametrize("host", ["a..b", f"{LONG}.example", "ß" * 40, "10.0.0.256", "\u3002"])
@pytest.mark.parametrize(("path", "text"), HOST_KEYS, ids=[path for path, _ in HOST_KEYS])
def test_a_malformed_host_is_refused_wherever_there_is_one(problems: Problems, path: str, text: str, host: str) -> None:
    found = problems(text.format(host) + BOARD)
    assert set(found) == {path}
    assert "an IP address or a host name (letters" in found[path]
    assert "hunter2" not in found[path]


@pytest.mark.parametrize("host", ["redis_1", "localhost.", "bücher.example", "[::1]", "127.0.0.1"])
@pytest.mark.parametrize(("path", "text"), HOST_KEYS, ids=[path for path, _ in HOST_KEYS])
def test_a_sound_host_is_taken_wherever_there_is_one(tmp_path: Path, path: str, text: str, host: str) -> None:
    assert loaded(tmp_path, text.format(host.strip("[]") if path == "server.host" else host) + BOARD)


@pytest.mark.parametrize("address", ["[1.2.3.4]:7000", "[::g]:7000", "a b:7000", "a@b:7000"])
def test_an_address_that_is_none_is_refused(problems: Problems, address: str) -> None:
    assert set(problems(f'[redis]\ncluster = ["{address}"]\n{BOARD}')) == {"redis.cluster[0]"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=ca -days 2"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "ca.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return folder / "ca.pem"


def authorities(path: Path | str) -> str:
    return f'[redis]\nprimary = "rediss://a"\ntls_ca_file = "{path}"\n{BOARD}'


def test_a_file_of_certificates_is_taken(tmp_path: Path, certificate: Path) -> None:
    assert loaded(tmp_path, authorities(certificate)).redis.tls_ca_file == certificate


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda path: path.write_text("root:x:0:0::/:/bin/sh\n"), "certificates in PEM form; {} holds none"),
        (lambda path: path.write_text(""), "certificates in PEM form; {} holds none"),
        (lambda path: path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "is damaged"),
        (lambda path: path.mkdir(), "{} is a folder"),
        (os.mkfifo, "{} is a pipe or device"),
        (lambda path: None, "cannot read {}: No such file or directory"),
    ],
    ids=["text", "empty", "damaged", "folder", "pipe", "missing"],
)
def test_certificates_that_cannot_be_used_are_refused_with_the_reason(
    problems: Problems, tmp_path: Path, made: Callable[[Path], object], says: str
) -> None:
    path = tmp_path / "ca.pem"
    made(path)
    found = problems(authorities(path))
    assert set(found) == {"redis.tls_ca_file"}
    assert says.format(path) in found["redis.tls_ca_file"]


def test_a_key_is_no_certificate(problems: Problems, certificate: Path) -> None:
    assert "holds none" in problems(authorities(certificate.with_name("key.pem")))["redis.tls_ca_file"]


def test_certificates_that_may_not_be_read_are_refused_with_the_reason(
    problems: Problems, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so that the refusal is put in the loading's place."""

    class Refusing(ssl.SSLContext):
        def load_verify_locations(self, *args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ssl, "SSLContext", Refusing)
    assert problems(authorities(certificate)) == {"redis.tls_ca_file": f"cannot read {certificate}: Permission denied"}


@pytest.mark.parametrize("name", ["a" * 5000, "a\\u0000b", "a\\u001b[31m"])
@pytest.mark.parametrize("key", ["tls_ca_file", "password_file"])
def test_a_path_that_no_file_can_have_is_refused(problems: Problems, key: str, name: str) -> None:
    found = problems(f'[redis]\nprimary = "rediss://a"\n{key} = "{name}"\n{BOARD}')
    assert set(found) == {f"redis.{key}"}
    assert found[f"redis.{key}"].isprintable()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"a = {DIGITS}", "holds a number of thousands of digits"),
        (f"[server]\nport = {DIGITS}", "holds a number of thousands of digits"),
        ("x = " + "[" * 5000, "nested too deeply"),
        (".".join("a" * 100_000) + " = 1", "nested too deeply"),
        ("[" + " . ".join(['"a"'] * 100_000) + "]", "nested too deeply"),
        ("a = 1\n" * 400_000, "more than 1048576 bytes"),
        ("a = '\0'", "is not TOML"),
        (b"a = '\xff'", "must be UTF-8"),
        ("a = 2026-13-45", "is not TOML"),
    ],
    ids=["digits", "port", "brackets", "dots", "header", "size", "nul", "utf-8", "date"],
)
def test_a_file_that_nobody_could_mean_is_one_problem(
    problems: Problems, tmp_path: Path, content: str | bytes, says: str
) -> None:
    ((path, message),) = problems(content).items()
    assert path == str(tmp_path / "gateway.toml")
    assert says in message


def test_text_may_hold_many_dots(tmp_path: Path) -> None:
    dots = f'# {"." * 500}\n{REDIS}{BOARD}profiles = "{"." * 500}"\nperiod = "none"\n'
    assert loaded(tmp_path, dots).boards


def test_a_pipe_is_read_and_one_that_nobody_writes_into_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(REDIS + BOARD,))
    writer.start()
    assert load(path, {}).boards
    writer.join()
    monkeypatch.setattr(reading, "PATIENCE_S", 0.01)
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    assert caught.value.problems == [(str(path), "cannot read the file: nothing came out of it for 0.01 s")]


@pytest.mark.parametrize(
    ("path", "says"), [("/dev/zero", "holds more than 1048576 bytes"), ("/", "Is a directory"), ("/dev/null", "none")]
)
def test_a_device_or_folder_is_no_file_of_settings(path: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load(path, {})


def test_a_secret_is_not_read_from_a_device_without_an_end_nor_waited_for(
    problems: Problems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.01)
    os.mkfifo(tmp_path / "pipe")
    text = f"""
[redis]
sentinels = ["a:1"]
service = "s"
password_file = "/dev/zero"
sentinel_password_file = "{tmp_path}/pipe"
{BOARD}"""
    assert problems(text) == {
        "redis.password_file": "cannot read /dev/zero: it holds more than 65536 bytes",
        "redis.sentinel_password_file": f"cannot read {tmp_path}/pipe: nothing came out of it for 0.01 s",
    }


@pytest.mark.parametrize("value", [HEXADECIMAL, f"[{HEXADECIMAL}]", f"{{ a = {HEXADECIMAL} }}"])
@pytest.mark.parametrize("key", ["server.port", "server.host", "server.drain_s", "log.level", "last_known.families"])
def test_a_number_that_is_too_long_to_be_shown_is_cut(problems: Problems, key: str, value: str) -> None:
    section, _, name = key.partition(".")
    found = problems(f"[{section}]\n{name} = {value}\n{REDIS}{BOARD}")
    assert "0xfff" in found[key]
    assert len(found[key]) < 250


def test_numbers_of_thousands_of_digits_from_the_environment_are_problems(problems: Problems) -> None:
    found = problems(REDIS, {"GATEWAY_SERVER__PORT": DIGITS, "GATEWAY_LEADERBOARDS": f"[{DIGITS}]"})
    assert 'not "9999' in found["server.port"]
    assert "a number of thousands of digits (from" in found["leaderboards"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1979-05-27", "1979-05-27"),
        ("1979-05-27T07:32:00Z", "1979-05-27T07:32:00+00:00"),
        ("07:32:00", "07:32:00"),
        ("nan", "nan"),
        ("[1, 'a', true]", '[1, "a", true]'),
        ("{ a = 1, 'b c' = [] }", '{ a = 1, "b c" = [] }'),
        ("{}", "{}"),
        ('"a\\"b\\u001b]0;x\\u0007"', '"a\\"b\\u001b]0;x\\u0007"'),
        ('"é"', '"é"'),
        ("[[[[[[1]]]]]]", "[[[[[…]]]]]"),
    ],
)
def test_a_value_is_shown_as_toml_would_write_it(problems: Problems, value: str, text: str) -> None:
    assert problems(f"[server]\nport = {value}\n{REDIS}{BOARD}")["server.port"].endswith(f", not {text}")


def test_null_which_toml_has_not_is_shown_as_json_has_it(problems: Problems) -> None:
    assert problems(REDIS + BOARD, {"GATEWAY_SERVER__PORT": "null"})["server.port"].startswith("must be a whole number")
    assert shown(None) == "null"


def test_nothing_that_a_terminal_would_obey_is_shown(problems: Problems) -> None:
    osc = "\\u001b]0;x\\u0007"
    text = (
        f'"{osc}" = 1\n[server]\n"{osc}" = 1\nhost = "{osc}"\n[log]\nlevel = "\\u202e{osc}"\n{REDIS}[[leaderboards]]\n'
    )
    text += (
        f'name = "a<{osc}>"\nkey = "b"\nplaceholders = {{ "{osc}" = "(" }}\ntimezone = "\\u009b"\nperiod = "daily"\n'
    )
    found = problems(text, {"GATEWAY_SERVER__\x1b[31m": "1"})
    assert len(found) >= 7
    assert all((path + message).isprintable() for path, message in found.items())
    assert found["\\u001b]0;x\\u0007"].startswith("unknown key")
    assert plain("\x1b\x9b\U000e0001") == "\\u001b\\u009b\\U000e0001"


def test_bad_settings_are_printed_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "\x1b]0;x\x07.toml"
    assert cli.main(["check", "--config", str(path)], {}) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_key_of_any_length_is_one_short_line(problems: Problems) -> None:
    found = problems(f"{'a' * 100_000} = 1\n{REDIS}{BOARD}")
    assert max(map(len, [*found, *found.values()])) <= 200


@pytest.mark.parametrize("label", ["current", "previous"])
def test_a_label_that_means_something_else_is_said_to_be_reserved(problems: Problems, label: str) -> None:
    season = f'[[leaderboards.seasons]]\nlabel = "{label}"\nstart = 2026-01-01\nend = 2026-02-01\n'
    found = problems(REDIS + BOARD.replace('key = "a"', 'key = "a:<period>"') + season)
    assert "is reserved" in found["leaderboards[0].seasons[0].label"]


@pytest.mark.parametrize(
    "store",
    [
        "none",
        "file:///var/lib/leaderboard-gateway",
        "file:///a%3Fb/c d",
        "s3://boards",
        "s3://my.bucket_1/a/b/",
        "postgresql://u:p%40s@h:5432/d",
        "postgresql://h1:1,h2/d?target_session_attrs=primary&sslmode=verify-full",
        "postgresql:///d",
        "postgresql:///d?host=/run/postgresql&port=5433",
        "postgresql://u@%2Frun%2Fpostgresql/d",
        "postgresql://[::1]:5432/d",
    ],
)
def test_a_store_that_can_be_opened_is_taken(tmp_path: Path, store: str) -> None:
    assert loaded(tmp_path, f'{REDIS}[last_known]\nstore = "{store}"\n{BOARD}').last_known.store == store


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("postgresql://u:hunter2@h:abc/d", "the port from 1 to 65535"),
        ("postgresql://u:hunter2@h:0/d", "the port from 1 to 65535"),
        (f"postgresql://u:hunter2@h:{DIGITS}/d", "the port from 1 to 65535"),
        ("postgresql://u:hunter2@h1,h2:x/d", "the port from 1 to 65535"),
        ("postgresql://u:hunter2/x@h/d", "%2F for /"),
        ("postgresql://u:hunter2@x@h/d", "%40 for @"),
        ("postgresql://u:p#hunter2@h/d", "%23 for #"),
        ("postgresql://u:hunter2@[::g]/d", "postgresql://"),
        ("postgresql://u:hunter2@a[b/d", "postgresql://"),
        ("postgresql://u:hunter2@:5432/d", "a host is an IP address"),
        ("postgresql://u:hunter2@h/d?sslmode=yes", "sslmode: disable"),
        ("postgresql://u:hunter2@h/d?port=x", "a port from 1 to 65535"),
        ("postgresql://u:hunter2@h/d?sslmode", "name=value"),
        ("postgresql://u:hunter2%00@h/d", "control characters"),
        ("postgresql://", "a host or a database"),
        ("file://hunter2/b", "three slashes"),
        ("file:hunter2", "three slashes"),
        ("file:///", "three slashes"),
        ("file:////", "three slashes"),
        ("file:///hunter2?x", "%3F"),
        ("file:///hunter2%00", "control characters"),
        ("s3:///hunter2", "the bucket"),
        ("s3://key:hunter2@bucket", "AWS_"),
        ("s3://a b/hunter2", "the bucket"),
        ("s3://bucket/hunter2//b", "empty"),
        ("s3://bucket/../hunter2", "empty"),
        ("s3://bucket/hunter2?x=1", "%3F"),
        ("mysql://u:hunter2@h/d", 'must be "none", "file:///a/folder"'),
    ],
)
def test_a_store_that_cannot_be_opened_is_refused_and_its_password_not_shown(
    problems: Problems, store: str, says: str
) -> None:
    found = problems(f'{REDIS}[last_known]\nstore = "{store}"\n{BOARD}')
    assert set(found) == {"last_known.store"}
    assert says in found["last_known.store"]
    assert "hunter2" not in found["last_known.store"]


@pytest.mark.parametrize(
    "environ",
    [
        {"GATEWAY_SERVER__HOST": "\udcff"},
        {"GATEWAY_LOG__LEVEL": "\udcff"},
        {"GATEWAY_REDIS__CLUSTER": '["\\ud800:1"]'},
        {"GATEWAY_CDN__PURGE": '[{"edge": "varnish", "url": "http://\\ud800\u2100"}]'},
        {"GATEWAY_REDIS__MAX_LAG_MS": "\udcff"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_halves_of_characters_are_problems(problems: Problems, environ: dict[str, str]) -> None:
    found = problems(REDIS + BOARD, environ)
    assert any(path.upper().replace(".", "__").startswith(next(iter(environ))[8:]) for path in found)
    assert all(message.isprintable() for message in found.values())
