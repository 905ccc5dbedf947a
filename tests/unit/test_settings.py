"""Settings: what a file may say, how the environment overrides it, and how every mistake is named."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gateway.boards import Boards
from gateway.errors import SettingsError
from gateway.settings import Settings, load

REDIS = '[redis]\nprimary = "redis://127.0.0.1:6379/0"\n'
BOARD = '[[leaderboards]]\nname = "downloads"\nkey = "lb:downloads"\n'

Load = Callable[..., Settings]


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    def load_it(text: str = REDIS + BOARD, environ: Mapping[str, str] | None = None) -> Settings:
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        return load(path, environ or {})

    return load_it


def problems(load_text: Load, text: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        load_text(text, environ)
    return dict(caught.value.problems)


def test_the_smallest_file_is_enough(load_text: Load) -> None:
    settings = load_text()
    assert (settings.server.port, settings.server.workers, settings.shared_tier) == (8080, 1, None)
    (board,) = settings.boards
    assert (board.name, board.key, board.ttl_s, board.grace_s, board.cache_top) == (
        "downloads",
        "lb:downloads",
        1.0,
        1.0,
        True,
    )


def test_every_problem_is_listed_at_once_with_its_path_and_what_would_be_right(load_text: Load) -> None:
    text = """
redsi = 1
[server]
prot = 1
port = "80"
workers = 0
admin = "everywhere"
[log]
format = "jason"
[redis]
primary = "http://127.0.0.1"
replicas = ["redis://a:1", 3]
password = "x"
primary_fallback = "yes"
[last_known]
store = "ftp://x"
keep_s = -1
[cdn]
dialects = ["akamai"]
[[leaderboards]]
name = "a"
key = "lb:a"
ttl_ms = 1.5
order = "up"
[[leaderboards]]
key = "x"
placeholders = { id = 3 }
[[leaderboards.seasons]]
label = "s"
start = 3
"""
    found = problems(load_text, text)
    redis_url = 'must be text such as "redis://127.0.0.1:6379/0" (rediss:// for TLS)'
    instant = 'a date or time such as 2026-03-01, 2026-03-01T09:00:00 or "2026-03-01T09:00:00+01:00"'
    assert found == {
        "redsi": "unknown key; did you mean redis?",
        "server.prot": "unknown key; did you mean port?",
        "server.port": 'must be a whole number from 1 to 65535, or 0 for any free port, not "80"',
        "server.workers": "must be a whole number from 1 to 256, not 0",
        "server.admin": 'must be text such as "127.0.0.1:9464", or "none" for no admin listener',
        "log.format": 'must be "text" or "json", not "jason"',
        "redis.primary": redis_url,
        "redis.replicas[1]": redis_url,
        "redis.password": "unknown key; did you mean password_file?",
        "redis.primary_fallback": 'must be true or false, not "yes"',
        "last_known.store": 'must be "none", "file:///a/folder", "postgresql://host/database" or "s3://bucket/prefix"',
        "last_known.keep_s": "must be a number of seconds from 0 to 31622400 (a year), not -1",
        "cdn.dialects[0]": 'must be "nginx", "varnish", "fastly" or "cloudflare", not "akamai"',
        "leaderboards[0].ttl_ms": "must be a whole number of milliseconds from 0 to 3600000 (an hour), not 1.5",
        "leaderboards[0].order": 'must be "desc" or "asc", not "up"',
        "leaderboards[1].name": "is required, text that is not empty",
        "leaderboards[1].key": "must hold <period>: else every period would be the same board",
        "leaderboards[1].placeholders.id": "must be text, a regular expression, not 3",
        "leaderboards[1].seasons[0].start": f"must be {instant}, not 3",
        "leaderboards[1].seasons[0].end": f"is required, {instant}",
    }


@pytest.mark.parametrize(
    ("redis", "path"),
    [
        ("", "redis"),
        ('primary = "redis://a"\nsentinels = ["b:1"]\nservice = "s"', "redis"),
        ('sentinels = ["b:1"]', "redis.service"),
        ('primary = "redis://a"\nservice = "s"', "redis.service"),
        ('cluster = ["b:1"]\nreplicas = ["redis://a"]', "redis.replicas"),
        ('cluster = ["b:0"]', "redis.cluster[0]"),
        ('cluster = ["b:70000"]', "redis.cluster[0]"),
        ('primary = "redis://a"\nsentinel_username = "s"', "redis.sentinel_username"),
        ('primary = "redis://a"\nusername = "s"', "redis.password_file"),
        ('primary = "redis://a"\npassword_file = "/no/such/file"', "redis.password_file"),
        ('primary = "redis://a/0"\nreplicas = ["redis://b/1"]', "redis.replicas"),
        ('primary = "redis://a"\nreplicas = ["rediss://b"]', "redis.replicas"),
        ('primary = "redis://a:99999"', "redis.primary"),
        ('primary = "redis://a"\ntls_ca_file = "/no/such/file"', "redis.tls_ca_file"),
        ('primary = "redis://a"\nread_timeout_ms = 501', "redis.read_timeout_ms"),
    ],
)
def test_redis_takes_exactly_one_shape_and_no_contradiction(load_text: Load, redis: str, path: str) -> None:
    assert path in problems(load_text, f"[redis]\n{redis}\n{BOARD}")


@pytest.mark.parametrize(
    ("redis", "shape"),
    [
        ('primary = "rediss://[::1]:6379/2"\nreplicas = ["rediss://a:6380/2"]', "fixed"),
        ('sentinels = ["a:26379", "[::1]:26379"]\nservice = "boards"', "sentinel"),
        ('cluster = ["a:7000"]\ntls = true', "cluster"),
    ],
)
def test_each_shape_of_redis_is_told_from_its_keys(load_text: Load, redis: str, shape: str) -> None:
    settings = load_text(f"[redis]\n{redis}\n{BOARD}").redis
    assert (settings.shape, settings.encrypted) == (shape, shape != "sentinel")


BOARD_FAULTS: list[tuple[str, str, str]] = [
    ('name = "clan-<id>"\nkey = "clan"', "key", "must hold <id>"),
    ('name = "clan"\nkey = "clan:<id>"', "key", "holds <id>"),
    ('name = "clan-<id"\nkey = "c"', "name", "< or >"),
    ('name = "<a><b>"\nkey = "<a><b>"', "name", "nothing between"),
    ('name = "<a>-<a>"\nkey = "<a>"', "name", "twice"),
    ('name = "<A>"\nkey = "<A>"', "name", "not a placeholder"),
    ('name = "<period>"\nkey = "<period>"', "name", "?period="),
    ('name = "a\\u0007"\nkey = "a"', "name", "control characters"),
    (f'name = "{"é" * 65}"\nkey = "a"', "name", "128 bytes"),
    ('name = "a"\nkey = "a"\nprofiles = "p:<id>"', "profiles", "holds <id>"),
    ('name = "a-<id>"\nkey = "a:<id>"\nplaceholders = { id = "[" }', "placeholders.id", "regular expression"),
    ('name = "a-<id>"\nkey = "a:<id>"\nplaceholders = { id = "a{1,99999999999}" }', "placeholders.id", "expression"),
    ('name = "a-<id>"\nkey = "a:<id>"\nplaceholders = { id = "(?u)a" }', "placeholders.id", "expression"),
    (f'name = "a-<id>"\nkey = "a:<id>"\nplaceholders = {{ id = "{"(?:" * 999}a" }}', "placeholders.id", "expression"),
    ('name = ".."\nkey = "a"', "name", "cannot travel"),
    (
        'name = "a"\nkey = "a:<period>"\nseasons=[{label="a",start=0001-01-01T00:00:00+23:59,end=2026-01-01}]',
        "seasons[0].start",
        "outside the years",
    ),
    (
        'name = "a"\nkey = "a:<period>"\nseasons=[{label="a",start=2026-01-01,end=9999-12-31T23:59:59-23:59}]',
        "seasons[0].end",
        "outside the years",
    ),
    ('name = "a-<id>"\nkey = "a:<id>"\nplaceholders = { id = "(a)" }', "placeholders.id", "capturing"),
    ('name = "a-<id>"\nkey = "a:<id>"\nplaceholders = { id = "a*" }', "placeholders.id", "empty text"),
    ('name = "a"\nkey = "a"\nplaceholders = { id = "a" }', "placeholders.id", "holds no <id>"),
    ('name = "a"\nkey = "a:<period>"', "key", "has none"),
    ('name = "a"\nkey = "a"\nperiod = "daily"', "key", "must hold <period>"),
    ('name = "a"\nkey = "a"\nstarts_at = "05:00"', "starts_at", "has none"),
    ('name = "a"\nkey = "<period>"\nperiod = "daily"\ntimezone = "Mars/Base"', "timezone", "Mars/Base"),
    ('name = "a"\nkey = "<period>"\nperiod = "daily"\nweek_starts = "sunday"', "week_starts", "weekly"),
    ('name = "a"\nkey = "<period>"\nperiod = "daily"\nperiod_format = "%Y%m"', "period_format", "same key"),
    ('name = "a"\nkey = "a"\ngrace_ms = 499', "grace_ms", "request_budget_ms (500)"),
    (
        'name = "a"\nkey = "a"\nread_from = "primary"\nttl_ms = 500',
        "read_from",
        "set grace_ms, edge_ttl_s, client_ttl_s",
    ),
]


@pytest.mark.parametrize(
    ("board", "key", "says"), BOARD_FAULTS, ids=[f"{fault[1]}-{fault[2]}" for fault in BOARD_FAULTS]
)
def test_a_board_that_contradicts_itself_is_refused(load_text: Load, board: str, key: str, says: str) -> None:
    found = problems(load_text, f"{REDIS}[[leaderboards]]\n{board}\n")
    assert says in found[f"leaderboards[0].{key}"]


def test_ttl_0_needs_no_grace(load_text: Load) -> None:
    (board,) = load_text(f"{REDIS}{BOARD}ttl_ms = 0\ngrace_ms = 0\n").boards
    assert (board.ttl_s, board.grace_s) == (0, 0)


@pytest.mark.parametrize(
    ("boards", "path"),
    [
        (['name = "a"\nkey = "x"', 'name = "a"\nkey = "y"'], "leaderboards[1].name"),
        (['name = "a"\nkey = "x"', 'name = "b"\nkey = "x"'], "leaderboards[1].key"),
        (['name = "c-<id>"\nkey = "c:<id>"', 'name = "c-top"\nkey = "y"'], "leaderboards[1].name"),
        (['name = "c-top"\nkey = "y"', 'name = "c-<id>"\nkey = "c:<id>"'], "leaderboards[1].name"),
        (['name = "<a>-<b>"\nkey = "<a>:<b>"', 'name = "c-<id>"\nkey = "c:<id>"'], "leaderboards[1].name"),
        (
            ['name = "c-<a>"\nkey = "1<a>"', 'name = "c-<b>"\nkey = "2<b>"\nplaceholders = {b="[0-9]+"}'],
            "leaderboards[1].name",
        ),
    ],
)
def test_two_boards_that_a_url_or_a_key_could_not_tell_apart_are_refused(
    load_text: Load, boards: list[str], path: str
) -> None:
    text = REDIS + "".join(f"[[leaderboards]]\n{board}\n" for board in boards)
    assert list(problems(load_text, text)) == [path]


def test_families_whose_placeholders_differ_live_side_by_side(load_text: Load) -> None:
    text = REDIS + "".join(
        f"[[leaderboards]]\nname = 'c-<id>'\nkey = '{index}:<id>'\nplaceholders = {{ id = '{pattern}' }}\n"
        for index, pattern in enumerate(["[0-9]+", "[a-z]+"])
    )
    found = problems(load_text, text)
    assert found == {"leaderboards[1].name": "is the name of leaderboards[0]"}
    settings = load_text(text.replace("'c-<id>'", "'d-<id>'", 1))
    assert all(board.is_family for board in settings.boards)


@pytest.mark.parametrize(
    ("extra", "cached", "lives"),
    [
        ("", False, (0, 0, 0, 0, 0, 0)),
        ("ttl_ms = 0\n", False, (0, 0, 0, 0, 0, 0)),
        ("ttl_ms = 500\ngrace_ms = 500\nedge_ttl_s = 1\nclient_ttl_s = 0\n", True, (0.5, 0.5, 1, 0, 0, 0)),
    ],
)
def test_a_board_read_from_the_primary_is_cached_only_on_purpose(
    load_text: Load, extra: str, cached: bool, lives: tuple[float, ...]
) -> None:
    (board,) = load_text(f'{REDIS}{BOARD}read_from = "primary"\n{extra}').boards
    assert board.cache_top is cached
    assert lives == (
        board.ttl_s,
        board.grace_s,
        board.edge_ttl_s,
        board.client_ttl_s,
        board.stale_while_revalidate_s,
        board.stale_if_error_s,
    )


@pytest.mark.parametrize(
    ("extra", "cached", "lives"),
    [("", False, (0, 0, 0)), ("client_ttl_s = 1\n", True, (0, 1, 0)), ("edge_ttl_s = 3\n", True, (3, 0, 0))],
)
def test_ttl_zero_stores_nothing_anywhere_but_where_a_life_is_set_on_purpose(
    load_text: Load, extra: str, cached: bool, lives: tuple[int, ...]
) -> None:
    (board,) = load_text(f"{REDIS}{BOARD}ttl_ms = 0\n{extra}").boards
    assert (board.ttl_s, board.cache_top) == (0.0, cached)
    assert lives == (board.edge_ttl_s, board.client_ttl_s, board.stale_while_revalidate_s)


def test_the_environment_overrides_the_file(load_text: Load) -> None:
    settings = load_text(
        environ={
            "GATEWAY_SERVER__PORT": "9000",
            "GATEWAY_SERVER__HOST": "10",
            "GATEWAY_SERVER__DRAIN_S": "0.5",
            "GATEWAY_REDIS__REPLICAS": '["redis://a:1"]',
            "GATEWAY_REDIS__PRIMARY_FALLBACK": "false",
            "GATEWAY_SHARED_TIER__URL": "redis://u:p@a",
            "GATEWAY_LEADERBOARDS": '[{"name": "x", "key": "y"}]',
        }
    )
    assert (settings.server.port, settings.server.host, settings.server.drain_s) == (9000, "10", 0.5)
    assert (settings.redis.replicas, settings.redis.primary_fallback) == (("redis://a:1",), False)
    assert settings.shared_tier is not None
    assert [board.key for board in settings.boards] == ["y"]
    assert settings.warnings == ()


def test_an_empty_variable_takes_a_key_of_the_file_away(load_text: Load) -> None:
    environ = {"GATEWAY_REDIS__PRIMARY": "", "GATEWAY_REDIS__CLUSTER": '["a:7000"]', "GATEWAY_REDIS__USERNAME": ""}
    assert load_text(environ=environ).redis.shape == "cluster"


def test_a_problem_from_the_environment_names_the_variable(load_text: Load) -> None:
    environ = {"GATEWAY_SERVER__PORT": "web", "GATEWAY_SERVER__PRT": "1", "GATEWAY_REDIS__REPLICAS": "[1]"}
    found = problems(load_text, REDIS + BOARD, environ)
    assert found["server.port"].endswith('not "web" (from GATEWAY_SERVER__PORT)')
    assert found["server.prt"] == "unknown key; did you mean port? (from GATEWAY_SERVER__PRT)"
    assert found["redis.replicas[0]"].endswith("(from GATEWAY_REDIS__REPLICAS)")
    assert "JSON" in problems(load_text, REDIS + BOARD, {"GATEWAY_LEADERBOARDS": "{"})["leaderboards"]


def test_variables_that_an_orchestrator_injects_are_one_warning(load_text: Load) -> None:
    environ = {
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_FOO__BAR": "1",
        "HOME": "/",
    }
    (warning,) = load_text(environ=environ).warnings
    assert warning.endswith("are ignored: GATEWAY_FOO__BAR, GATEWAY_PORT, GATEWAY_SERVICE_HOST")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x=" + b"[" * 5000, "nested too deeply"),
        (b"[server", "is not TOML"),
        (b"a = '\xff'", "UTF-8"),
        (None, "cannot read the file: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "gateway.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    ((where, message),) = caught.value.problems
    assert where == str(path)
    assert says in message


def test_a_file_may_begin_with_the_mark_that_some_editors_write(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_bytes(b"\xef\xbb\xbf" + (REDIS + BOARD).encode())
    assert load(path, {}).boards


@pytest.mark.parametrize(
    "environ",
    [
        {"GATEWAY_LEADERBOARDS": "[" * 100_000},
        {"GATEWAY_SERVER__WORKERS": "[" * 100_000},
        {"GATEWAY_SERVER__HOST": "local\0host"},
        {"GATEWAY_REDIS__PRIMARY": "redis://h h:1"},
        {"GATEWAY_REDIS__PRIMARY": "redis://h\n:1"},
        {"GATEWAY_REDIS__PRIMARY": "redis://\udcff:1"},
        {"GATEWAY_LAST_KNOWN__STORE": "file:///a\0b"},
        {"GATEWAY_SHARED_TIER__URL": "redis://\0:1"},
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_what_no_variable_should_hold_is_a_problem_and_no_accident(load_text: Load, environ: dict[str, str]) -> None:
    (path,) = problems(load_text, REDIS + BOARD, environ)
    assert path.upper().replace(".", "__") in next(iter(environ))


@pytest.mark.parametrize("pattern", ["(?i)[a-z]+", "(?s)(?i)[a-z]+", "(?x)[a-z]+ # letters", "(?s:.)+", "a|b|ab"])
def test_a_placeholder_may_have_flags_of_its_own(load_text: Load, pattern: str) -> None:
    family = f"[[leaderboards]]\nname = 'c-<id>-x'\nkey = 'c:<id>'\nplaceholders = {{ id = '{pattern}' }}\n"
    boards = Boards(load_text(REDIS + BOARD + family).boards)
    assert boards.resolve("c-ab-x", None, 0.0).key == b"c:ab"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("server = 3\n" + REDIS + BOARD, "server"),
        (REDIS + "[leaderboards]\nname = 'a'\n", "leaderboards"),
        (REDIS, "leaderboards"),
        ("leaderboards = [3]\n" + REDIS, "leaderboards[0]"),
    ],
)
def test_something_else_where_a_table_belongs_is_named(load_text: Load, text: str, path: str) -> None:
    assert path in problems(load_text, text, {"GATEWAY_SERVER__PORT": "1"} if path == "server" else None)


def test_secrets_show_nowhere(load_text: Load, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    text = f"""
[redis]
primary = "redis://a"
password_file = "{secret}"
[shared_tier]
url = "redis://tier:hunter2@a"
[last_known]
store = "postgresql://u:hunter2@a/b"
[[cdn.purge]]
edge = "varnish"
url = "http://u:hunter2@a"
token_file = "{secret}"
{BOARD}"""
    settings = load_text(text)
    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == "hunter2"
    assert settings.cdn.purge[0].token is not None
    assert "hunter2" not in f"{settings!r} {settings} {settings.redis!r}"
    broken = text.replace("redis://tier", "http://tier").replace("postgresql:", "mysql:").replace("http://u", "ftp://u")
    broken = broken.replace('"redis://a"', '"redis://u:hunter2@a"')
    found = problems(load_text, broken, {"GATEWAY_REDIS__PASSWORD": "hunter2"})
    assert {"redis.primary", "redis.password", "shared_tier.url", "last_known.store", "cdn.purge[0].url"} == set(found)
    assert "hunter2" not in str(found)


def test_a_secret_is_read_once_and_travels_with_the_settings(load_text: Load, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("one")
    settings = load_text(f'{REDIS}password_file = "{secret}"\n{BOARD}')
    secret.unlink()
    copy = pickle.loads(pickle.dumps(settings))
    assert copy.redis.password.get_secret_value() == "one"
    assert copy.boards == settings.boards


def test_an_empty_secret_file_is_refused(load_text: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("\n")
    found = problems(load_text, f'{REDIS}password_file = "{tmp_path / "secret"}"\n{BOARD}')
    assert "must name a file that holds a password" in found["redis.password_file"]


@pytest.mark.parametrize("edge", ["varnish", "fastly", "cloudflare"])
def test_a_purge_target_names_what_its_edge_needs(load_text: Load, edge: str) -> None:
    found = problems(load_text, f'{REDIS}[[cdn.purge]]\nedge = "{edge}"\n{BOARD}')
    needs = {"varnish": {"url"}, "fastly": {"service", "token_file"}, "cloudflare": {"zone", "token_file"}}
    assert set(found) == {f"cdn.purge[0].{key}" for key in needs[edge]}


FASTLY = '[[cdn.purge]]\nedge = "fastly"\nservice = "SU1Z0"\n'


def test_a_purge_token_may_come_from_the_environment_and_never_shows(load_text: Load) -> None:
    text = f'{REDIS}[cdn]\n{FASTLY}token_variable = "PURGE_TOKEN"\n{BOARD}'
    settings = load_text(text, {"PURGE_TOKEN": "s3cr3t"})
    token = settings.cdn.purge[0].token
    assert token is not None
    assert token.get_secret_value() == "s3cr3t"
    assert "s3cr3t" not in repr(settings)


@pytest.mark.parametrize("environ", [{}, {"PURGE_TOKEN": ""}])
def test_a_purge_token_that_the_environment_does_not_hold_is_a_problem(
    load_text: Load, environ: Mapping[str, str]
) -> None:
    found = problems(load_text, f'{REDIS}[cdn]\n{FASTLY}token_variable = "PURGE_TOKEN"\n{BOARD}', environ)
    assert "PURGE_TOKEN" in found["cdn.purge[0].token_variable"]


def test_a_purge_token_has_one_source(load_text: Load) -> None:
    both = 'token_variable = "PURGE_TOKEN"\ntoken_file = "/nowhere"\n'
    found = problems(load_text, f"{REDIS}[cdn]\n{FASTLY}{both}{BOARD}", {"PURGE_TOKEN": "x"})
    assert set(found) == {"cdn.purge[0].token_variable"}


def test_keep_is_at_least_the_interval(load_text: Load) -> None:
    assert "last_known.keep_s" in problems(load_text, f"{REDIS}[last_known]\nkeep_s = 1\n{BOARD}")


def test_seasons_make_a_board_periodic(load_text: Load) -> None:
    text = """
[[leaderboards]]
name = "cup"
key = "cup:<period>"
[[leaderboards.seasons]]
label = "spring"
start = 2026-03-01
end = "2026-06-01T00:00:00+02:00"
"""
    (board,) = load_text(REDIS + text).boards
    assert board.calendar is not None
    assert board.calendar.named("spring").end == 1780264800
    overlapping = text + '[[leaderboards.seasons]]\nlabel = "may"\nstart = 2026-05-01\nend = 2026-07-01\n'
    assert "overlaps" in problems(load_text, REDIS + overlapping)["leaderboards[0].seasons[1].start"]


def test_boards_can_come_from_the_environment_alone(load_text: Load) -> None:
    boards = [{"name": "clan-<id>", "key": "clan:<id>", "placeholders": {"id": "[0-9]+"}}]
    (board,) = load_text(REDIS, {"GATEWAY_LEADERBOARDS": json.dumps(boards)}).boards
    assert board.placeholders["id"].fullmatch("42")
