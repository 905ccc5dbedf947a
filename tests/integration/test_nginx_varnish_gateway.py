"""nginx and Varnish, configured by the command, in front of a real gateway and real Redis."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]  # ships no stubs
import pytest

from gateway.cli import main
from tests.fault.proxy import ThreadedProxy
from tests.httplint import lint
from tests.integration.edges import Reply, crowd, exchange, get
from tests.servers import Gateway, Nginx, Process, RedisGroup, RedisServer, Varnish, eventually, free_port

pytestmark = pytest.mark.xdist_group("edges")

PROBE_SECONDS = float(os.environ.get("PROBE_SECONDS", "4"))
"""How long each probe runs; 60 for the full proof."""

MAX_LAG_S = 4.0
LAG_S = 0.9
"""Almost what a replica may lag: two looks are counted on top, a second and a half apart where one node is silent."""

LIVES = {
    "ttl_ms": 200,
    "grace_ms": 600,
    "client_ttl_s": 1,
    "edge_ttl_s": 1,
    "stale_while_revalidate_s": 1,
    "stale_if_error_s": 60,
}
SECRET = "only-for-tests"
EDGES = ["nginx", "varnish"]

IDS = [
    "team/ann",
    "100%",
    "%2F",
    "what?",
    "#1",
    "a+b",
    "a b",
    "a:b",
    "{x}",
    "a/rank",
    "..x",
    'say "hi"',
    "back\\slash",
    "🏆",
    "\u00e9",
    "e\u0301",
    "🏆" * 64,
    "x/../../../../../livez",
    "x/../../../../.././problem/412",
]
CLIMBING = "../../../../../etc"


class World(NamedTuple):
    """Redis, the gateway, and both edges in front of it."""

    redis: RedisGroup
    gateway: Gateway
    ports: dict[str, int]

    def tops(self) -> float:
        """Return how many answers about a top the gateway has given; a worker that is held up tells a moment later."""
        counted = -1.0
        while counted != (counted := self.gateway.metric("gateway_responses_total", route="top")):
            time.sleep(0.1)
        return counted


@pytest.fixture(scope="module")
def world(module_stack: contextlib.ExitStack, tmp_path_factory: pytest.TempPathFactory) -> World:
    secret = tmp_path_factory.mktemp("edges") / "purge-secret"
    secret.write_text(SECRET)
    redis = module_stack.enter_context(RedisGroup())
    members = enumerate([*IDS, CLIMBING])
    redis.write("ZADD", "lb:downloads", *(part for rank, member in members for part in (1000 - rank, member)))
    redis.write("ZADD", "lb:polled", 1, "ann")
    redis.write("SET", "lb:broken", "not a sorted set")
    varnish_port = free_port()
    boards = [{"name": name, "key": f"lb:{name}", **LIVES} for name in ("downloads", "probe-nginx", "probe-varnish")]
    settings = {
        "redis": {**redis.settings, "max_lag_ms": round(MAX_LAG_S * 1000)},
        "cdn": {
            "dialects": ["nginx", "varnish"],
            "purge": [{"edge": "varnish", "url": f"http://127.0.0.1:{varnish_port}", "token_file": str(secret)}],
        },
        "leaderboards": [
            *boards,
            {"name": "polled", "key": "lb:polled", **LIVES, "stale_while_revalidate_s": 60},
            {"name": "slow", "key": "lb:slow", **LIVES, "edge_ttl_s": 600},
            {"name": "broken", "key": "lb:broken"},
            {"name": "clan-<id>", "key": "lb:clan:<id>"},
        ],
    }
    gateway = module_stack.enter_context(Gateway(settings))
    nginx_port = free_port()
    options = ["--listen", f"127.0.0.1:{nginx_port}", "--listen-h2", "none", "--state-dir", ".", "--access-log", "log"]
    module_stack.enter_context(Nginx(printed("nginx", gateway, *options), port=nginx_port))
    # The probes wait for longer than the gateway ever stands still on a busy machine.
    vcl = printed("varnish", gateway).replace(".timeout = 1s;", ".timeout = 30s;")
    assert vcl.count(".timeout = 30s;") == 2
    module_stack.enter_context(Varnish(vcl, port=varnish_port))
    return World(redis, gateway, {"nginx": nginx_port, "varnish": varnish_port})


def printed(edge: str, gateway: Gateway, *options: str) -> str:
    """Return what the command prints for the gateway's own file."""
    with contextlib.redirect_stdout(io.StringIO()) as printed_text:
        assert main(["edge", edge, "--config", str(gateway.config), *options], {}) == 0
    return printed_text.getvalue()


# ---- the same answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", EDGES)
def test_every_id_of_the_contract_is_the_same_member_through_the_edge(world: World, edge: str) -> None:
    for rank, member in enumerate(IDS, start=1):
        path = f"/v1/leaderboards/downloads/members/{quote(member, safe='')}"
        answer = json.loads(get(world.ports[edge], path).body)
        assert (answer["member"], answer["rank"]) == (member, rank)
        window = json.loads(get(world.ports[edge], f"{path}/neighbors?above=0&below=0").body)
        assert [entry["member"] for entry in window["entries"]] == [member]
    batch = "&".join(f"member={quote(member, safe='')}" for member in [*IDS, CLIMBING])
    answer = json.loads(get(world.ports[edge], f"/v1/leaderboards/downloads/members?{batch}").body)
    assert [entry["member"] for entry in answer["entries"]] == [*IDS, CLIMBING]
    dots = get(world.ports[edge], "/v1/leaderboards/downloads/members/%2E%2E")
    assert (dots.status, json.loads(dots.body)["code"]) == (400, "invalid_member")


@pytest.mark.parametrize("edge", EDGES)
def test_an_id_that_is_too_long_is_refused_by_the_gateway_with_a_problem_document(world: World, edge: str) -> None:
    for length, status in ((257, 400), (4_000, 400)):
        reply = get(world.ports[edge], "/v1/leaderboards/downloads/members/" + "m" * length)
        assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")


def test_d17_ids_of_any_length_are_refused_with_a_problem_document_by_nginx_or_behind_it(world: World) -> None:
    for length, status in ((9_000, 400), (17_000, 414), (70_000, 414)):
        reply = get(world.ports["nginx"], "/v1/leaderboards/downloads/members/" + "m" * length)
        assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json"), length
        assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("x=" + "a" * 17_000, 414, "uri_too_long"),
        ("x=" + "a" * (16_385 - len("/v1/leaderboards/downloads/top?x=")), 414, "uri_too_long"),
        ("x=\u00e9", 400, "invalid_parameter"),
        ("\u0080", 400, "invalid_parameter"),
    ],
    ids=["long", "one too many", "e9", "80"],
)
def test_a_target_that_the_gateway_refuses_is_refused_though_the_route_is_kept(
    world: World, edge: str, query: str, status: int, code: str
) -> None:
    target = "/v1/leaderboards/downloads/top"
    for _ in range(2):
        assert get(world.ports[edge], target).status == 200
    for port in (world.gateway.port, world.ports[edge]):
        reply = get(port, f"{target}?{query}")
        assert (reply.status, json.loads(reply.body)["code"]) == (status, code)
        assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("edge", EDGES)
def test_no_host_or_two_are_a_400_at_the_edge_as_at_the_gateway(world: World, edge: str) -> None:
    for target in ("/v1/leaderboards/downloads/top", "/v1/leaderboards/downloads/members/what%3F"):
        assert get(world.ports[edge], target).status == 200
        for hosts in ("", "Host: a\r\nHost: b\r\n"):
            request = f"GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode()
            for port in (world.gateway.port, world.ports[edge]):
                assert exchange(port, request).status == 400, (port, hosts)


@pytest.mark.parametrize("edge", EDGES)
def test_each_form_arrives_packed_once_and_unpacks_to_the_plain_one(world: World, edge: str) -> None:
    target = "/v1/leaderboards/downloads/top"
    plain = get(world.ports[edge], target)
    packed = get(world.ports[edge], target, {"Accept-Encoding": "gzip, deflate"})
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body))["entries"] == json.loads(plain.body)["entries"]
    assert "accept-encoding" in packed.headers["vary"].lower()


@pytest.mark.parametrize("edge", EDGES)
def test_a_matching_condition_is_a_304_through_the_edge_with_the_leaderboard_s_fields(world: World, edge: str) -> None:
    target = "/v1/leaderboards/downloads/top?limit=3"

    def both() -> tuple[Reply, Reply] | None:
        """Ask twice, without and with the condition; None if what is kept was fetched anew in between."""
        whole = get(world.ports[edge], target)
        reply = get(world.ports[edge], target, {"If-None-Match": f'"x", {whole.etag}'})
        assert (reply.status, reply.body) == (304, b"")
        return (whole, reply) if reply.headers["leaderboard-as-of"] == whole.headers["leaderboard-as-of"] else None

    asked = eventually(both)
    assert asked is not None
    whole, reply = asked
    for name in ("cache-control", "etag", "vary", "access-control-allow-origin"):
        assert reply.headers[name] == whole.headers[name]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("If-Match", '"other"'),
        ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"),
        ("If-Modified-Since", "now"),
    ],
)
def test_a_condition_that_the_gateway_ignores_is_ignored_at_the_edge_too(
    world: World, edge: str, name: str, value: str
) -> None:
    target = "/v1/leaderboards/downloads/top?limit=2"
    for port in (world.gateway.port, world.ports[edge], world.ports[edge]):
        reply = get(port, target, {name: value.replace("now", formatdate(usegmt=True))})
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers["access-control-allow-origin"] == "*"


# ---- errors --------------------------------------------------------------------------------------------------------

ERRORS = [
    (400, "/v1/leaderboards/downloads/top?limit=0"),
    (400, "/v1/leaderboards/downloads/top?limit=1&limit=2"),
    (404, "/v1/leaderboards/downloads/members/nobody"),
    (404, "/v1/nothing"),
    (404, "/v1/leaderboards/downloads/top/"),
    (404, "/metrics"),
    (414, "/v1/leaderboards/downloads/top?x=" + "x" * 16_400),
    (500, "/v1/leaderboards/broken/top"),
]


def test_no_error_is_kept_even_by_an_nginx_that_would_keep_anything(world: World) -> None:
    """Such a front needs every error to say for itself that nobody may keep it, those of the framework too."""
    port = free_port()
    careless = f"""
        events {{}}
        http {{
            proxy_cache_path cache keys_zone=all:1m;
            access_log off;
            server {{
                listen 127.0.0.1:{port};
                large_client_header_buffers 4 32k;
                location / {{
                    proxy_pass http://127.0.0.1:{world.gateway.port};
                    proxy_cache all;
                    proxy_cache_key $request_uri;
                    proxy_buffer_size 32k;
                    proxy_buffers 8 32k;
                    proxy_cache_valid any 60s;
                    add_header X-Kept $upstream_cache_status always;
                }}
            }}
        }}
    """
    with Nginx(careless, port=port):
        for status, target in ERRORS:
            for _ in range(2):
                reply = get(port, target)
                assert (reply.status, reply.headers["x-kept"]) == (status, "MISS"), target
                assert reply.headers["cache-control"] == "no-store"
        for kept in ("MISS", "HIT"):
            reply = get(port, "/v1/leaderboards/unheard-of/top")
            assert (reply.status, reply.headers["x-kept"]) == (404, kept)
            assert reply.headers["cache-control"] == "public, max-age=5"


@pytest.mark.parametrize("edge", EDGES)
def test_the_linter_finds_nothing_in_what_the_edge_makes_of_any_answer(world: World, edge: str) -> None:
    top = "/v1/leaderboards/downloads/top"
    etag = get(world.ports[edge], top).etag
    kinds = [
        *(("GET", target, {}) for _, target in ERRORS),
        *(("GET", top, headers) for headers in ({}, {"Accept-Encoding": "gzip"}, {"If-None-Match": etag})),
        ("HEAD", top, {}),
        ("GET", "/v1/leaderboards", {}),
        ("GET", "/v1/leaderboards/downloads/members/team%2Fann", {}),
        ("GET", "/v1/leaderboards/unheard-of/top", {}),
        ("POST", top, {}),
        ("OPTIONS", top, {}),
        ("GET", "/readyz", {}),
    ]
    if edge == "nginx":
        kinds += [
            ("TRACE", top, {}),
            ("GET", "/%zz", {}),
            ("GET", "/" + "x" * 30_000, {}),
            ("GET", top, {"If-Match": ""}),
        ]
    for method, target, headers in kinds:
        for _ in range(2):  # the second may come from the cache
            reply = get(world.ports[edge], target, headers, method=method)
            assert lint(reply.raw, method=method) == [], (method, target[:80])


# ---- load and connections ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", EDGES)
def test_200_polling_clients_cost_the_gateway_one_read_for_each_life(world: World, edge: str) -> None:
    target = "/v1/leaderboards/polled/top?limit=10"
    get(world.ports[edge], target, {"Accept-Encoding": "gzip"})
    before, began = world.tops(), time.monotonic()
    replies = crowd(world.ports[edge], target, 200, rounds=5, pause_s=0.5)
    lives = time.monotonic() - began
    assert {reply.status for reply in replies} == {200}
    assert world.tops() - before <= lives + 2


def test_idle_connections_to_the_gateway_neither_use_it_up_nor_end_in_a_502(world: World) -> None:
    """After five idle seconds, uvicorn's own default, nginx still has the same connections, and they carry requests."""
    target = "/v1/leaderboards/downloads/members/what%3F"
    assert {reply.status for reply in crowd(world.gateway.port, target, 100)} == {200}
    port = free_port()
    options = ["--listen", f"127.0.0.1:{port}", "--listen-h2", "none", "--state-dir", ".", "--access-log", "log"]
    with Nginx(printed("nginx", world.gateway, *options), port=port) as nginx:
        assert {reply.status for reply in crowd(port, target, 50)} == {200}
        kept = connections(nginx, world.gateway.port)
        while kept != (kept := connections(nginx, world.gateway.port)):
            time.sleep(0.1)
        assert kept
        time.sleep(5.05)
        assert connections(nginx, world.gateway.port) == kept
        assert {reply.status for reply in crowd(port, target, 50)} == {200}
        assert connections(nginx, world.gateway.port) >= kept


def connections(nginx: Nginx, port: int) -> set[int]:
    """Return the near ends of the connections that nginx has open to this port."""
    return {
        each.laddr.port
        for worker in psutil.Process(nginx.pid).children()
        for each in worker.net_connections("tcp")
        if each.raddr and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
    }


# ---- purging -------------------------------------------------------------------------------------------------------


def test_a_purge_by_the_command_is_seen_through_varnish_at_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "/v1/leaderboards/slow/top"
    world.redis.write("ZADD", "lb:slow", 1, "ann")

    def score(port: int) -> int:
        entries = json.loads(get(port, target).body)["entries"]
        return int(entries[0]["score"]) if entries else 0

    eventually(lambda: score(world.gateway.port) == 1, what="the gateway shows the first score")
    assert main(["purge", "slow", "--config", str(world.gateway.config)], {}) == 0
    assert score(world.ports["varnish"]) == 1
    world.redis.write("ZADD", "lb:slow", 2, "ann")
    eventually(lambda: score(world.gateway.port) == 2, what="the gateway shows the second score")
    assert score(world.ports["varnish"]) == 1, "Varnish keeps the answer for ten minutes"
    assert main(["purge", "slow", "--config", str(world.gateway.config)], {}) == 0
    assert score(world.ports["varnish"]) == 2, "whoever asks next sees the purge"
    said = capsys.readouterr().out
    assert "purged at once" in said
    assert SECRET not in said


# ---- the staleness bound -------------------------------------------------------------------------------------------


class Running(Process):
    """A probe in a process of its own, through one edge, on that edge's own board."""

    def __init__(self, world: World, edge: str) -> None:
        super().__init__(f"probe-{edge}")
        url = f"http://127.0.0.1:{world.ports[edge]}"
        options = ["--url", url, "--rate", "50", "--seconds", str(PROBE_SECONDS), "--config", str(world.gateway.config)]
        self.command = [sys.executable, "-m", "gateway", "probe", f"probe-{edge}", *options]

    def start(self) -> None:
        """Start it; it ends by itself."""
        self.spawn(self.command, cwd=Path(__file__).parents[2])

    def verdict(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and the report."""
        assert self.popen is not None
        return self.popen.wait(PROBE_SECONDS + 60), self.output()


def probe_both(world: World) -> dict[str, str]:
    """Run the prober through both edges at the same time; return the reports, each of which must say "kept"."""
    with contextlib.ExitStack() as stack:
        probes = {edge: stack.enter_context(Running(world, edge)) for edge in EDGES}
        reports = {}
        for edge, probe in probes.items():
            status, reports[edge] = probe.verdict()
            assert status == 0, reports[edge]
            assert "kept" in reports[edge]
            print(f"{edge}\n{reports[edge]}")
        return reports


def age_s(report: str, which: str) -> float:
    """Return one age of a report: ``p50``, ``worst``."""
    return float(report.partition(f"{which} ")[2].partition(" s")[0])


def test_what_clients_see_through_either_edge_is_younger_than_the_published_bound(world: World) -> None:
    published = world.gateway.json("/v1/leaderboards/probe-nginx")["staleness_bound_s"]
    assert published == MAX_LAG_S + 0.2 + 0.6 + 0.5 + 1 + 1 + 2 * 1
    for report in probe_both(world).values():
        assert f"bound   {published:g} s: kept" in report
        assert f"{round(50 * PROBE_SECONDS)} answered, 0 marked stale, 0 failed" in report
        assert age_s(report, "worst") < published
    assert world.redis.call("EXISTS", "lb:probe-nginx", "lb:probe-varnish") == 0, "the probe leaves its boards empty"


def reads_of(node: RedisServer) -> int:
    return node.commandstats().get("evalsha", 0)


def test_the_bound_holds_while_the_only_replica_lags_almost_as_much_as_it_may(world: World) -> None:
    lagging, other = world.redis.replicas
    with ThreadedProxy(world.redis.primary.port) as proxy:
        lagging.call("REPLICAOF", "127.0.0.1", proxy.port)
        try:
            eventually(lagging.in_sync, what="the replica is in sync through the proxy")
            other.freeze()
            proxy.do(lambda fault: fault.delay(LAG_S))
            published = world.gateway.json("/v1/leaderboards/probe-nginx")["staleness_bound_s"]
            before = reads_of(lagging)
            for report in probe_both(world).values():
                assert LAG_S < age_s(report, "worst") < published
            assert reads_of(lagging) > before, "the lagging replica was read"
        finally:
            other.thaw()
            lagging.call("REPLICAOF", "127.0.0.1", world.redis.primary.port)
    world.redis.wait_in_sync()


def test_the_probe_touches_no_board_that_holds_other_members(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = world.redis.call("ZCARD", "lb:downloads")
    assert main(["probe", "downloads", "--config", str(world.gateway.config)], {}) == 1
    assert "one of its own" in capsys.readouterr().err
    assert world.redis.call("ZCARD", "lb:downloads") == before


# ---- outages: these come last, since they disturb everything -------------------------------------------------------


def test_while_redis_is_away_stale_answers_go_on_being_collapsed_by_both_edges(world: World) -> None:
    target = "/v1/leaderboards/downloads/top?limit=7"
    for edge in EDGES:
        get(world.ports[edge], target, {"Accept-Encoding": "gzip"})
    for node in world.redis.nodes:
        node.freeze()
    try:
        eventually(lambda: b'"stale":true' in world.gateway.get(target)[2], what="the gateway notices")
        for edge in EDGES:
            eventually(partial(_is_stale, world.ports[edge], target), what=f"{edge} holds the stale answer")
        before, began = world.tops(), time.monotonic()
        results: list[int] = []
        askers = [threading.Thread(target=_poll, args=(world.ports[edge], target, results.append)) for edge in EDGES]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        allowed = len(EDGES) * ((time.monotonic() - began) / 2 + 2)
        assert set(results) == {200}
        assert world.tops() - before <= allowed
        # Nothing is known of this one: an error that neither edge may keep.
        for edge in EDGES:
            reply = get(world.ports[edge], f"/v1/leaderboards/clan-{edge}/top")
            assert reply.status in {503, 504}
            assert reply.headers["cache-control"] == "no-store"
            assert lint(reply.raw) == []
            assert lint(get(world.ports[edge], target).raw) == []
    finally:
        for node in world.redis.nodes:
            node.thaw()
    for edge in EDGES:
        eventually(partial(_shows, world.ports[edge], target, b'"stale":false'), what=f"{edge} recovers")
        eventually(partial(_shows, world.ports[edge], f"/v1/leaderboards/clan-{edge}/top", b'"total":0'))


def _is_stale(port: int, target: str) -> bool:
    """Whether a crowd, which asks for the packed form, is given the stale answer."""
    return "leaderboard-stale" in get(port, target, {"Accept-Encoding": "gzip"}).headers


def _shows(port: int, target: str, text: bytes) -> bool:
    return text in get(port, target).body


def _poll(port: int, target: str, note: Callable[[int], None]) -> None:
    for reply in crowd(port, target, 100, rounds=8, pause_s=0.5):
        note(reply.status)


def test_a_gateway_that_is_gone_is_covered_by_both_edges(world: World) -> None:
    target = "/v1/leaderboards/downloads/top?limit=4"
    for edge in EDGES:
        assert get(world.ports[edge], target).status == 200
    world.gateway.kill()
    time.sleep(2.2)  # past the lives and Varnish's stale window
    for edge in EDGES:  # Varnish's probe needs two failures
        eventually(partial(_shows, world.ports[edge], target, b'"entries"'), every_s=0.5, what=f"{edge} has it")
        assert get(world.ports[edge], target).status == 200, edge
