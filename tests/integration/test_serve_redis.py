"""The whole gateway as processes against a real Redis: it stops clean, starts without Redis, its workers agree."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.accounts import FIXED_ACCOUNT, PASSWORD, USER
from tests.fault.proxy import FaultProxy, ThreadedProxy
from tests.servers import Gateway, RedisCluster, RedisGroup, RedisServer, SentinelGroup, eventually
from tests.servers.redis_sentinel import SERVICE

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


Group: TypeAlias = RedisGroup | SentinelGroup | RedisCluster
GROUPS: dict[str, type[Group]] = {"replicas": RedisGroup, "sentinel": SentinelGroup, "cluster": RedisCluster}


@contextlib.contextmanager
def running(shape: str) -> Iterator[tuple[Group, list[RedisServer], list[RedisServer]]]:
    """Give servers of a shape, its nodes and its Sentinels; nobody calls a node that is frozen for a moment down."""
    with GROUPS[shape]() as group:
        nodes = [server for server in group.nodes if isinstance(server, RedisServer)]
        sentinels: list[RedisServer] = [*group.sentinels] if isinstance(group, SentinelGroup) else []
        for sentinel in sentinels:
            sentinel.call("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 60_000)
        if isinstance(group, RedisCluster):
            for node in nodes:
                node.call("CONFIG", "SET", "cluster-node-timeout", 60_000)
            group.write("ZADD", "lb:s", 10, "ann", 20, "bob")
        else:
            group.primary.call("ZADD", "lb:s", 10, "ann", 20, "bob")
        yield group, nodes, sentinels


class Asking:
    """Requests in threads of their own, a connection each."""

    def __init__(self, gateway: Gateway, path: str, count: int) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self._gateway, self._path = gateway, path
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        status, _, body = self._gateway.get(self._path)
        self.answers.append((status, body))

    def wait(self) -> list[tuple[int, bytes]]:
        """Return status and body of every answer, once all are there."""
        for thread in self._threads:
            thread.join()
        return self.answers


def stop_while_in_flight(gateway: Gateway, asking: Asking, go_on: Callable[[], None]) -> None:
    """Signal while requests wait, let Redis go on once the drain shows, and end the drain when all are answered."""
    gateway.signal(SIGTERM)
    eventually(lambda: gateway.get("/readyz")[0] == 503)
    assert asking.answers == []
    go_on()
    answers = asking.wait()
    assert [status for status, _ in answers] == [200] * 20
    assert all(b'"rank":2' in body for _, body in answers)
    errors = gateway.stop()  # the second signal
    assert "stopped clean=True" in errors
    assert not re.search("Event loop is closed|was destroyed", errors), errors


PATIENT = {"read_timeout_ms": 25_000, "request_budget_ms": 25_000}
"""Longer than the machine ever stands still. Boards must have a grace as long."""
GRACE_MS = 25_000


def gateway_connection(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=30)


@pytest.mark.parametrize("workers", [1, 4])
def test_d13_a12_sigterm_finishes_what_is_in_flight_and_leaves_nothing_behind(
    redis: RedisServer, stack: contextlib.ExitStack, workers: int
) -> None:
    """20 requests wait for a silent Redis, 50 connections are idle, one request is half sent."""
    proxy = stack.enter_context(ThreadedProxy(redis.port))
    settings = {
        "server": {"workers": workers},
        "redis": {"primary": f"redis://{proxy.address}", **PATIENT},
        "leaderboards": [board(grace_ms=GRACE_MS)],
    }
    gateway = stack.enter_context(Gateway(settings, drain_s=60))
    gateway.wait_all_ready()
    idle = [stack.enter_context(gateway_connection(gateway)) for _ in range(50)]
    half_sent = stack.enter_context(gateway_connection(gateway))
    half_sent.sendall(b"GET /livez HTTP/1.1\r\nHo")
    for client in idle:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    proxy.do(FaultProxy.hang)
    asking = Asking(gateway, MEMBER, 20)
    eventually(lambda: gateway.metric("gateway_connections") == 71)
    stop_while_in_flight(gateway, asking, lambda: proxy.do(FaultProxy.heal))
    eventually(lambda: not clients_of(redis))


@pytest.mark.parametrize("shape", GROUPS)
def test_a12_a_gateway_of_any_shape_finishes_what_is_in_flight_and_leaves_no_connection(
    stack: contextlib.ExitStack, shape: str
) -> None:
    group, nodes, sentinels = stack.enter_context(running(shape))
    settings = {"redis": {**group.settings, **PATIENT}, "leaderboards": [board(grace_ms=GRACE_MS)]}
    gateway = stack.enter_context(Gateway(settings, drain_s=60))
    for sentinel in sentinels:
        eventually(lambda at=sentinel: any("subscribe" in one for one in clients_of(at)))  # type: ignore[misc]
    for node in nodes:
        node.freeze()
    asking = Asking(gateway, MEMBER, 20)
    eventually(lambda: gateway.metric("gateway_connections") == 20)

    def thaw() -> None:
        for node in nodes:
            node.thaw()

    stop_while_in_flight(gateway, asking, thaw)
    for server in [*nodes, *sentinels]:
        eventually(lambda at=server: not clients_of(at))  # type: ignore[misc]


@pytest.mark.parametrize("shape", GROUPS)
def test_a12_an_idle_gateway_of_any_shape_stops_without_a_sound(stack: contextlib.ExitStack, shape: str) -> None:
    group, nodes, sentinels = stack.enter_context(running(shape))
    gateway = stack.enter_context(Gateway({"redis": group.settings, "leaderboards": [board()]}))
    assert any(map(clients_of, nodes))
    assert gateway.get(TOP)[0] == 200
    assert "stopped clean=True" in gateway.stop()
    for server in [*nodes, *sentinels]:
        eventually(lambda at=server: not clients_of(at))  # type: ignore[misc]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("away", ["refused", "silent"])
def test_a14_a_start_without_redis_is_live_says_why_and_recovers_by_itself(
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
    eventually(lambda: f"primary {proxy.address} is down" in gateway.stderr.read_text(), what="it says why")
    proxy.do(FaultProxy.heal)
    gateway.wait_all_ready()
    for _ in range(8):  # a connection each: the kernel spreads them over the workers
        assert recovered(gateway, MEMBER)["rank"] == 1
        assert recovered(gateway, TOP)["total"] == 1
    gateway.stop()


def recovered(gateway: Gateway, path: str) -> Any:
    """Return what a path answers: a 200, if need be in a moment, since a busy Redis may be late for one read."""

    def answer() -> bytes | None:
        status, _, body = gateway.get(path)
        return body if status == 200 else None

    return json.loads(eventually(answer, what=f"{path} is answered") or b"")


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
            Gateway(
                {"redis": {"primary": server.url, **account, **PATIENT}, "leaderboards": [board(grace_ms=GRACE_MS)]},
                wait_for="/livez",
            )
        )
        if status == 503:
            eventually(lambda gateway=gateway: "WRONGPASS" in gateway.stderr.read_text())  # type: ignore[misc]
        eventually(lambda gateway=gateway, status=status: gateway.get("/readyz")[0] == status)  # type: ignore[misc]
        answers = [gateway.get(path) for path in (TOP, MEMBER, f"{MEMBER}/neighbors", "/readyz")]
        assert [answer[0] for answer in answers] == [status] * 4
        shown = gateway.metrics() + repr(answers)
        shown += gateway.stop()
        assert secret not in shown
        assert ("WRONGPASS" in shown) is (status == 503)
    refused = [entry for entry in map(repr, server.call("ACL", "LOG")) if "auth" not in entry]
    assert not refused, "it needed a command that the documents do not list"


def test_c22_workers_agree_within_the_ttl(redis: RedisServer) -> None:
    """The bound is ttl + grace: a snapshot is served that long, and one refresh runs behind it in each worker."""
    settings = {
        "server": {"workers": 4},
        "redis": {"primary": redis.url, "read_timeout_ms": 1000, "request_budget_ms": 1000},
        "leaderboards": [board(ttl_ms=500, grace_ms=1000)],
    }
    with Gateway(settings) as gateway:
        # Where the machine stood still just after the write, nobody asked for what was old: then there is another.
        rounds = (answers_around_a_write(gateway, redis, f"new-{score}", score) for score in range(1000, 1010))
        seen = next((seen for seen in rounds if any(not one.is_new for one in seen)), [])
        gateway.stop()
    redis.call("ZREMRANGEBYSCORE", "lb:s", 1000, 1010)
    old, new = ([one.as_of for one in seen if one.is_new is is_new] for is_new in (False, True))
    assert old, "the workers' snapshots were never asked while old"
    assert max(old) < max(new), "an answer's own time tells a client which of two is newer"


class Seen(NamedTuple):
    """One answer: when it was asked for after the write, whether it knew of that, and its own time."""

    asked_s: float
    is_new: bool
    as_of: str


def answers_around_a_write(gateway: Gateway, redis: RedisServer, member: str, score: int) -> list[Seen]:
    """Put somebody new at the top and return what is seen until 50 answers are older than they may be."""
    ttl_s, grace_s = 0.5, 1.0
    for _ in range(40):
        gateway.json(TOP)
    redis.call("ZADD", "lb:s", score, member)
    changed = time.monotonic()
    seen: list[Seen] = []
    late = 0
    while late < 50:
        asked_s = time.monotonic() - changed
        _, headers, body = gateway.get(TOP)
        if "leaderboard-stale" in headers:  # Redis itself was late: such an answer says how old it is
            continue
        seen.append(Seen(asked_s, json.loads(body)["entries"][0]["member"] == member, headers["leaderboard-as-of"]))
        late += asked_s > ttl_s + grace_s + 0.25
    assert all(one.is_new for one in seen if one.asked_s > ttl_s + grace_s + 0.25)
    return seen
