"""The main job, end to end: a real board in a real primary with two real replicas, read through HTTP.

The answers are compared with an independent sort of the CSV file; where the reads went is asked of Redis itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import random
import re
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.patience import PATIENT
from tests.servers import Gateway, RedisGroup
from tests.servers.process import eventually

pytestmark = pytest.mark.xdist_group("main_job")

CSV = Path("gateway/demo/data/package-downloads/2026-03.csv")
READS = {"zrevrange", "zrange", "zrevrank", "zrank", "zscore", "zcard", "zcount", "zmscore", "evalsha", "eval"}


class World(NamedTuple):
    redis: RedisGroup
    gateway: Gateway
    scores: dict[str, int]

    def expected(self) -> list[str]:
        """Sort the file anew: highest first, equal scores in reverse byte order."""
        return sorted(self.scores, key=lambda member: (self.scores[member], member.encode()), reverse=True)


@pytest.fixture(scope="module")
def world(module_stack: contextlib.ExitStack) -> World:
    with CSV.open(encoding="utf-8", newline="") as file:
        scores = {row["member"]: int(row["score"]) for row in csv.DictReader(file)}
    group = module_stack.enter_context(RedisGroup())
    pairs = [part for member, score in scores.items() for part in (score, member)]
    group.write("ZADD", "lb:downloads", *pairs)
    board = {"name": "downloads", "key": "lb:downloads", "ttl_ms": 1000, "grace_ms": 7000}
    # Fresh for a minute: however long a crowd takes to ask, nothing has to be read again.
    family = {"name": "family-<id>", "key": "lb:<id>", "ttl_ms": 60_000, "grace_ms": 7_000}
    gateway = module_stack.enter_context(
        Gateway({"redis": {**group.settings, **PATIENT}, "leaderboards": [board, family]}, wait_for="/readyz")
    )
    return World(group, gateway, scores)


@pytest.fixture
def counted(world: World) -> Iterator[World]:
    """Check that no read at all reached the primary while a test ran."""
    before = world.redis.primary.commandstats()
    yield world
    after = world.redis.primary.commandstats()
    grown = {command for command in READS if after.get(command, 0) > before.get(command, 0)}
    assert not grown, f"reads on the primary: {grown}"


async def everyones_ranks(gateway: Gateway, members: list[str]) -> dict[str, tuple[int, int]]:
    """Ask for every member by itself, as players do, over 16 connections."""
    found: dict[str, tuple[int, int]] = {}
    waiting = iter(members)

    async def asker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for member in waiting:
            writer.write(f"GET /v1/leaderboards/downloads/members/{member} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]  # None fails the test
            answer = json.loads(await reader.readexactly(length))
            assert head.startswith(b"HTTP/1.1 200"), (head, answer)
            assert (answer["member"], answer["stale"]) == (member, False)
            found[member] = (answer["rank"], answer["score"])
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(asker() for _ in range(16)))
    return found


def test_the_top_is_that_of_an_independent_sort(counted: World) -> None:
    entries = counted.gateway.json("/v1/leaderboards/downloads/top")["entries"]
    expected = [
        {"rank": rank, "member": member, "score": counted.scores[member]}
        for rank, member in enumerate(counted.expected()[:100], 1)
    ]
    assert entries == expected


async def test_every_members_rank_and_score_is_that_of_an_independent_sort(counted: World) -> None:
    expected = {member: (rank, counted.scores[member]) for rank, member in enumerate(counted.expected(), 1)}
    assert await everyones_ranks(counted.gateway, list(counted.scores)) == expected


@pytest.mark.parametrize("place", [0, 1, 4, 5, 7_500, 14_994, 14_998, 14_999])
def test_neighbor_windows_are_cut_at_both_ends_and_never_shifted(counted: World, place: int) -> None:
    ordered = counted.expected()
    entries = counted.gateway.json(f"/v1/leaderboards/downloads/members/{ordered[place]}/neighbors")["entries"]
    assert [entry["member"] for entry in entries] == ordered[max(0, place - 5) : place + 6]
    assert [entry["rank"] for entry in entries] == list(range(max(0, place - 5) + 1, min(15_000, place + 6) + 1))


def test_any_range_of_ranks_is_a_slice_of_the_same_order(counted: World) -> None:
    ordered = counted.expected()
    for first, last in ((1, 100), (101, 200), (7_451, 7_550), (14_951, 15_050), (15_001, 15_100)):
        answer = counted.gateway.json(f"/v1/leaderboards/downloads/ranks?from={first}&to={last}")
        assert [entry["member"] for entry in answer["entries"]] == ordered[first - 1 : last]
        assert answer["total"] == 15_000


async def test_the_answers_hold_while_a_writer_changes_scores(world: World) -> None:
    """Ranks read during writes are of some instant; once the writer stops, they are what the primary says."""
    generator = random.Random(7)
    members = list(world.scores)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for member in generator.sample(members, 20):
                world.scores[member] = max(0, world.scores[member] + generator.randrange(-(10**6), 10**6))
                world.redis.call("ZADD", "lb:downloads", world.scores[member], member)
            stop.wait(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        during = await everyones_ranks(world.gateway, members[:3_000])
    finally:
        stop.set()
        writer.join()
    assert all(1 <= rank <= 15_000 for rank, _ in during.values())
    world.redis.wait_in_sync()
    expected = {member: (rank, world.scores[member]) for rank, member in enumerate(world.expected(), 1)}
    assert scores_on_primary(world.redis) == world.scores
    assert await everyones_ranks(world.gateway, members[:3_000]) == {name: expected[name] for name in members[:3_000]}
    eventually(
        lambda: (
            [entry["member"] for entry in world.gateway.json("/v1/leaderboards/downloads/top")["entries"]]
            == world.expected()[:100]
        ),
        what="the top shows the final scores",
    )


def scores_on_primary(group: RedisGroup) -> dict[str, int]:
    flat = group.call("ZRANGE", "lb:downloads", 0, -1, "WITHSCORES")
    return {member.decode(): int(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}


def range_commands(group: RedisGroup) -> int:
    return group.commandstats().get("zrevrange", 0)


@pytest.mark.parametrize(("crowd", "hangs_up"), [(1_000, False), (1_000, True), (9_000, False)])
def test_a_cold_crowd_is_one_range_command(world: World, crowd: int, hangs_up: bool) -> None:
    """Real sockets, all connected before the first request goes out; the first of them may hang up at once."""
    name = f"crowd-{crowd}-{hangs_up}"
    world.redis.write("ZADD", f"lb:{name}", 3, "ann", 2, "bob", 1, "cyd")
    with contextlib.ExitStack() as stack:
        stack.enter_context(many_open_files())
        clients = [socket.create_connection(("127.0.0.1", world.gateway.port), timeout=100) for _ in range(crowd)]
        for client in clients:
            stack.enter_context(client)
        no_load_under_way(world.gateway)
        before = range_commands(world.redis)
        request = f"GET /v1/leaderboards/family-{name}/top HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        for number, client in enumerate(clients):
            client.sendall(request)
            if hangs_up and number == 0:
                client.close()
        for client in clients[1 if hangs_up else 0 :]:
            with client.makefile("rb") as answers:
                answer = answers.read()
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            assert b'"member":"ann"' in answer
        assert range_commands(world.redis) - before == 1


def no_load_under_way(gateway: Gateway) -> None:
    """Wait for what an answer before may have set going behind itself."""

    def idle() -> bool:
        return gateway.metric("gateway_flights") == gateway.metric("gateway_flight_waiters") == 0

    eventually(idle, what="no load is under way")


@contextlib.contextmanager
def many_open_files() -> Iterator[None]:
    """Let this process open as many sockets as it may; the gateway does the same for itself."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_each_read_is_counted_once_by_route_and_outcome(world: World) -> None:
    """hit, joined, miss, stale and failed add up to the reads that were made."""

    def reads(route: str) -> dict[str, float]:
        outcomes = ("hit", "joined", "miss", "stale", "failed")
        return {name: world.gateway.metric("gateway_reads_total", route=route, outcome=name) for name in outcomes}

    def made(route: str, paths: list[str]) -> dict[str, float]:
        before = reads(route)
        statuses = [world.gateway.get(path)[0] for path in paths]
        assert set(statuses) <= {200, 404}
        after = reads(route)
        return {outcome: after[outcome] - before[outcome] for outcome in after}

    tops: dict[str, Any] = made("top", ["/v1/leaderboards/downloads/top?limit=3"] * 20)
    assert sum(tops.values()) == 20
    assert tops["failed"] == tops["stale"] == 0
    ranks = made("member", ["/v1/leaderboards/downloads/members/boto3"] * 5)
    assert ranks == {"hit": 0, "joined": 0, "miss": 5, "stale": 0, "failed": 0}


def test_metrics_tell_of_every_board_and_node_and_name_nothing_that_a_client_chose_and_no_address(
    world: World,
) -> None:
    gateway, member = world.gateway, "a-member-that-a-client-invented"
    assert gateway.get(f"/v1/leaderboards/family-invented/members/{member}")[0] == 404
    assert gateway.get("/v1/leaderboards/family-invented/top")[0] == 200
    gateway.json("/v1/leaderboards/downloads/top")
    gateway.json("/v1/leaderboards/downloads/ranks?from=201&to=300")
    text = gateway.metrics()
    assert "invented" not in text
    assert not any(f":{node.port}" in text for node in world.redis.nodes)
    assert 0 < gateway.metric("gateway_snapshot_age_seconds", leaderboard="downloads") < 60
    assert text.count("\ngateway_snapshot_age_seconds{") == 1, "of configured boards only"
    assert gateway.metric("gateway_snapshots") >= 3
    assert gateway.metric("gateway_snapshots_bytes") > 5_000
    no_load_under_way(gateway)
    for node in ("primary", "replica-0", "replica-1"):
        # The crowds before held the gateway up for longer than nodes may be silent.
        eventually(lambda node=node: gateway.metric("gateway_redis_node_state", node=node, state="up") == 1)  # type: ignore[misc]
        eventually(lambda node=node: gateway.metric("gateway_redis_node_lag_seconds", shard="0", node=node) < 2)  # type: ignore[misc]
    counted = gateway.metric("gateway_read_duration_seconds_count", route="top")
    outcomes = gateway.metric("gateway_reads_total", route="top")
    assert counted == outcomes > 0
