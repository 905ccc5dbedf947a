"""The whole gateway as processes against a real Redis: it stops clean, starts without Redis, its workers agree."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from tests.accounts import FIXED_ACCOUNT, PASSWORD, USER
from tests.fault.proxy import FaultProxy, ThreadedProxy
from tests.servers import Gateway, RedisCluster, RedisGroup, RedisServer, SentinelGroup, eventually

pytestmark = pytest.mark.xdist_group("serve_redis")

MEMBER = "/v1/leaderboards/s/members/ann"
TOP = "/v1/leaderboards/s/top"


def board(**more: Any) -> dict[str, Any]:
    return {"name": "s", "key": "lb:s", **more}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        server.call("ZADD", "lb:s", 10, "ann", 20, "bob")
        yield server


def clients_of(server: RedisServer) -> list[str]:
    """Return who is connected to a server, its own replicas and those who watch or manage it aside."""
    lines = server.call("CLIENT", "LIST").decode().splitlines()
    ours = str(server.call("CLIENT", "ID"))
    names = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return [
        f"{one['name']} {one['cmd']}"
        for one in names
        if one["id"] != ours and not set(one["flags"]) & set("SM") and not one["name"].startswith("sentinel-")
    ]


def ask(gateway: Gateway, path: str, answers: list[tuple[int, bytes]]) -> None:
    status, _, body = gateway.get(path)
    answers.append((status, body))


def gateway_connection(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=20)


@pytest.mark.parametrize("workers", [1, 4])
def test_d13_a12_sigterm_finishes_what_is_in_flight_and_leaves_nothing_behind(
    redis: RedisServer, stack: contextlib.ExitStack, workers: int
) -> None:
    """20 requests wait for a slow Redis, 50 connections are idle, one request is half sent."""
    proxy = stack.enter_context(ThreadedProxy(redis.port))
    limits = {"read_timeout_ms": 2500, "request_budget_ms": 2500}
    settings = {
        "server": {"workers": workers},
        "redis": {"primary": f"redis://{proxy.address}", **limits},
        "leaderboards": [board(grace_ms=2500)],
    }
    gateway = stack.enter_context(Gateway(settings, drain_s=1))
    idle = [stack.enter_context(gateway_connection(gateway)) for _ in range(50)]
    half_sent = stack.enter_context(gateway_connection(gateway))
    half_sent.sendall(b"GET /livez HTTP/1.1\r\nHo")
    for client in idle:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    proxy.do(lambda it: it.delay(0.5))
    answers: list[tuple[int, bytes]] = []
    threads = [threading.Thread(target=ask, args=(gateway, MEMBER, answers)) for _ in range(20)]
    for thread in threads:
        thread.start()
    eventually(lambda: gateway.metric("gateway_connections") == 71, within_s=5)
    began = time.monotonic()
    gateway.signal(SIGTERM)
    eventually(lambda: gateway.get("/readyz")[0] == 503, within_s=0.9)
    for thread in threads:
        thread.join()
    assert gateway.popen is not None
    assert gateway.popen.wait(10) == 0
    assert time.monotonic() - began < 10
    assert [status for status, _ in answers] == [200] * 20
    assert all(b'"rank":2' in body for _, body in answers)
    errors = gateway.stderr.read_text()
    assert not re.search("Traceback|never retrieved|unclosed|Event loop is closed|was destroyed", errors), errors
    eventually(lambda: not clients_of(redis), within_s=2)


@pytest.mark.parametrize("shape", ["replicas", "sentinel", "cluster"])
def test_a12_an_idle_gateway_of_any_shape_stops_without_a_sound(stack: contextlib.ExitStack, shape: str) -> None:
    group: RedisGroup | SentinelGroup | RedisCluster = stack.enter_context(
        {"replicas": RedisGroup, "sentinel": SentinelGroup, "cluster": RedisCluster}[shape]()
    )
    gateway = stack.enter_context(Gateway({"redis": group.settings, "leaderboards": [board()]}))
    nodes = [server for server in group.nodes if isinstance(server, RedisServer)]
    assert any(map(clients_of, nodes))
    assert gateway.get(TOP)[0] == 200
    errors = gateway.stop(within_s=5)
    assert "stopped clean=True" in errors
    for server in nodes:
        eventually(lambda server=server: not clients_of(server), within_s=2)  # type: ignore[misc]


@pytest.mark.parametrize(("workers", "away"), [(1, "refused"), (4, "silent")])
def test_a14_a_start_without_redis_is_live_at_once_and_recovers_by_itself(
    stack: contextlib.ExitStack, workers: int, away: str
) -> None:
    server = stack.enter_context(RedisServer())
    server.call("ZADD", "lb:s", 10, "ann")
    proxy = stack.enter_context(ThreadedProxy(server.port))
    if away == "silent":
        proxy.do(FaultProxy.hang)
    else:
        proxy.do(FaultProxy.refuse)
    settings = {
        "server": {"workers": workers},
        "redis": {"primary": f"redis://{proxy.address}"},
        "leaderboards": [board()],
    }
    gateway = stack.enter_context(Gateway(settings, wait_for="/livez"))
    status, _, body = gateway.get("/readyz")
    assert (status, json.loads(body)["redis"]) == (503, "down")
    for path in (TOP, MEMBER):
        status, headers, _ = gateway.get(path)
        assert status in {503, 504}
        assert headers["cache-control"] == "no-store"
    proxy.do(FaultProxy.heal)
    gateway.wait_ready(within_s=10)
    assert gateway.json(MEMBER)["rank"] == 1
    assert gateway.json(TOP)["total"] == 1
    gateway.stop(within_s=5)


def test_a_gateway_with_the_documented_account_serves_and_its_password_right_or_wrong_shows_nowhere(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    server = stack.enter_context(RedisServer(acl=[FIXED_ACCOUNT]))
    server.call("ZADD", "lb:s", 10, "ann")
    server.call("ACL", "LOG", "RESET")
    for secret, status in ((PASSWORD, 200), ("not-the-password-1", 503)):
        (tmp_path / "password").write_text(secret)
        account = {"username": USER, "password_file": str(tmp_path / "password")}
        gateway = stack.enter_context(
            Gateway({"redis": {"primary": server.url, **account}, "leaderboards": [board()]}, wait_for="/livez")
        )
        eventually(lambda gateway=gateway, status=status: gateway.get("/readyz")[0] == status)  # type: ignore[misc]
        answers = [gateway.get(path) for path in (TOP, MEMBER, f"{MEMBER}/neighbors", "/readyz")]
        assert [answer[0] for answer in answers] == [status] * 4
        shown = gateway.metrics() + repr(answers)
        shown += gateway.stop(within_s=5)
        assert secret not in shown
        assert ("WRONGPASS" in shown) is (status == 503)
    refused = [entry for entry in map(repr, server.call("ACL", "LOG")) if "auth" not in entry]
    assert not refused, "it needed a command that the documents do not list"


def test_c22_workers_agree_within_the_ttl(redis: RedisServer) -> None:
    """The bound is ttl + grace: a snapshot is served that long, and one refresh runs behind it in each worker."""
    ttl_s, grace_s = 0.5, 0.5
    settings = {
        "server": {"workers": 4},
        "redis": {"primary": redis.url},
        "leaderboards": [board(ttl_ms=500, grace_ms=500)],
    }
    with Gateway(settings) as gateway:
        for _ in range(40):
            gateway.json(TOP)
        redis.call("ZADD", "lb:s", 999, "new")
        changed = time.monotonic()
        seen: list[tuple[float, bool, str]] = []
        while time.monotonic() < changed + 2.5:
            asked = time.monotonic()
            _, headers, body = gateway.get(TOP)
            first = json.loads(body)["entries"][0]["member"]
            seen.append((asked - changed, first == "new", headers["leaderboard-as-of"]))
        gateway.stop()
    redis.call("ZREM", "lb:s", "new")
    late = [one for one in seen if one[0] > ttl_s + grace_s + 0.25]
    assert len(late) > 50
    assert all(is_new for _, is_new, _ in late)
    assert any(not is_new for _, is_new, _ in seen), "the workers' snapshots were never asked while old"
    when = {is_new: [as_of for _, new, as_of in seen if new is is_new] for is_new in (True, False)}
    assert max(when[False]) < max(when[True]), "an answer's own time tells a client which of two is newer"
