"""A period ends while clients poll, directly and through nginx: nobody is given the old one a second too long."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.app import Gateway, build
from gateway.clock import SystemClock
from gateway.http.protocol import GatewayProtocol
from gateway.server.serving import Serving
from gateway.settings import load
from tests.fault.polling import Crowd, Seen, polling
from tests.origins import soon
from tests.servers import Nginx, RedisServer, free_port
from tests.servers.gateway import toml

pytestmark = pytest.mark.xdist_group("periods")

DAY_S = 86_400
FIRST = datetime(2026, 3, 19, tzinfo=UTC).timestamp()
GONE_S = 2.5
LABELS = ["2026-03-18", "2026-03-19", "2026-03-20", "2026-03-21", "2026-03-22"]
DAY = "/v1/leaderboards/day"
CURRENT = [f"{DAY}/top", f"{DAY}/top?limit=1", f"{DAY}/ranks?from=1&to=2", f"{DAY}/top?period=current", DAY]
PREVIOUS = f"{DAY}/top?period=previous"
CATALOGUE = "/v1/leaderboards"
NAMED = f"{DAY}/top?period=2026-03-19"
LEAD_S = 5.7
"""Not whole seconds: nginx counts those, and would always look anew at the same distance from a boundary."""


class ShiftedClock(SystemClock):
    """This machine's clock, with a wall that a test sets."""

    shift_s = 0.0

    def wall(self) -> float:
        return time.time() + self.shift_s

    def set(self, wall: float) -> None:
        self.shift_s = wall - time.time()


class World(NamedTuple):
    """A gateway in this process, whose wall clock is the test's, and nginx in front of it."""

    clock: ShiftedClock
    gateway: Gateway
    serving: Serving
    redis: RedisServer
    port: int
    nginx: int


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        for score, label in enumerate(LABELS, start=1):
            server.call("ZADD", f"lb:{label}", score, label, 0, "last")
        yield server


@pytest.fixture
async def world(redis: RedisServer, tmp_path: Path) -> AsyncIterator[World]:
    port, front = free_port(), free_port()
    config = tmp_path / "gateway.toml"
    lives = {"client_ttl_s": 1, "edge_ttl_s": 3, "stale_while_revalidate_s": 5, "stale_if_error_s": 60}
    board = {"name": "day", "key": "lb:<period>", "period": "daily", "ttl_ms": 2000, "grace_ms": 2000, **lives}
    settings = {
        "server": {"port": port},
        "redis": {"primary": redis.url, "read_timeout_ms": 2000, "request_budget_ms": 2000},
        "cdn": {"dialects": ["nginx"]},
        "leaderboards": [board],
    }
    config.write_text(toml(settings))
    clock = ShiftedClock()
    gateway = build(load(config, {}), clock=clock)
    serving = Serving(gateway.asgi, GatewayProtocol, clock)
    with Nginx(printed(config, front), port=front):
        clock.set(FIRST + DAY_S - LEAD_S)
        await gateway.start()
        async with asyncio.timeout(60):
            while not gateway.readiness().ready:  # the first load runs behind the start
                await asyncio.sleep(0.01)
        await serving.start([socket.create_server(("127.0.0.1", port))])
        try:
            yield World(clock, gateway, serving, redis, port, front)
        finally:
            await serving.finish(0)
            await gateway.stop()


def printed(config: Path, port: int) -> str:
    """Return what the command prints for this file."""
    # fmt: off
    command = [sys.executable, "-m", "gateway", "edge", "nginx", "--config", str(config), "--listen",
               f"127.0.0.1:{port}", "--listen-h2", "none", "--state-dir", ".", "--access-log", "log"]
    # fmt: on
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


def label_of(one: Seen) -> str:
    period = one.body["period"]
    label = period["label"] if isinstance(period, dict) else period
    if "entries" in one.body:
        assert one.body["entries"][0]["member"] == label, "the rows are of the period that is named"
    return str(label)


def reach_s(control: str) -> int:
    """Return how long an answer may be served by one cache: its life and the longer stale window."""
    found = {name: int(value) for name, value in re.findall(r"([a-z-]+)=(\d+)", control)}
    return found["max-age"] + max(found.get("stale-while-revalidate", 0), found.get("stale-if-error", 0))


def held_up_s(crowd: Crowd) -> float:
    """Return for how long the machine may have kept nginx from reading an answer, whose life it counts from then on."""
    longest = max(one.seconds for one in crowd.seen)
    return longest if longest > 0.2 else 0.0


async def test_at_the_boundary_everybody_sees_the_new_period_and_nothing_kept_reaches_past_it(world: World) -> None:
    """To the second: whatever life a snapshot has left, at the gateway and out of nginx's cache."""
    targets = [*CURRENT, PREVIOUS, CATALOGUE, NAMED]
    world.clock.set(FIRST + DAY_S - LEAD_S)
    boundary = FIRST + DAY_S - world.clock.shift_s
    async with contextlib.AsyncExitStack() as stack:
        direct, edge = [
            await stack.enter_async_context(polling(port, targets, clients=8, pause_s=0.05))
            for port in (world.port, world.nginx)
        ]
        await asyncio.sleep(LEAD_S + 1.5)
    for crowd, held_s in (direct, 0.0), (edge, held_up_s(edge)):
        assert {one.status for one in crowd.seen} == {200}
        for one in crowd.seen:
            if one.target == CATALOGUE or one.sent - held_s - 0.01 < boundary < one.got + 0.01:
                continue
            at = 1 if one.sent < boundary else 2
            expected = "2026-03-19" if one.target == NAMED else LABELS[at - (one.target == PREVIOUS)]
            assert label_of(one) == expected, (one.sent - boundary, one)
    hits = [one for one in edge.seen if one.headers["cache-status"].endswith("nginx; hit")]
    assert len(hits) > len(edge.seen) / 2, "nginx answered most of it"
    for one in direct.seen:
        if one.target != NAMED and one.got < boundary:
            lives = [reach_s(one.headers[name]) for name in ("cache-control", "cdn-cache-control")]
            assert one.sent + sum(lives) <= boundary + 0.01, one
    assert any(reach_s(one.headers["cdn-cache-control"]) > 3 for one in direct.seen if one.target == NAMED)


async def test_an_edge_whose_gateway_is_gone_shows_no_period_after_its_end(world: World) -> None:
    """Its stale answers for errors end at the boundary; a period asked for by name is shown all the same."""
    targets = [*CURRENT, PREVIOUS, NAMED]
    world.clock.set(FIRST + DAY_S - LEAD_S - GONE_S)
    boundary = FIRST + DAY_S - world.clock.shift_s
    async with polling(world.nginx, targets, clients=7, pause_s=0.05) as crowd:
        await soon(lambda: {one.target for one in crowd.seen} == set(targets), what="nginx has them all")
        await asyncio.sleep(boundary - GONE_S - time.time())
        gone = time.time()
        await world.serving.finish(0)
        await asyncio.sleep(boundary + 1.0 - time.time())
    assert {one.status for one in crowd.seen if one.got < gone} == {200}
    assert any(one.status == 200 for one in crowd.since(gone, boundary))
    for one in crowd.since(boundary + held_up_s(crowd) + 0.01):
        assert one.status == (200 if one.target == NAMED else 502), one


async def test_a_board_whose_new_period_nobody_asked_for_leaves_the_instance_ready(world: World) -> None:
    """And an outage over the boundary does too: what is not known yet is one board, not the instance."""
    async with polling(world.port, ["/readyz"], clients=1, pause_s=0.02) as crowd:
        await asyncio.sleep(FIRST + DAY_S + 0.5 - world.clock.wall())
        known = {"fresh": 1, "last_known": 0, "missing": 0}
        await soon(lambda: bool(crowd.seen[-1].body["leaderboards"] == known), what="the new period is known")
        world.redis.kill()
        world.clock.set(FIRST + 2 * DAY_S - 0.5)
        await soon(lambda: bool(crowd.seen[-1].body["leaderboards"]["missing"] == 1), what="the next one is not")
        await asyncio.sleep(1.0)
    assert {one.status for one in crowd.seen} == {200}
    assert crowd.seen[-1].body["status"] == "degraded"
    assert crowd.seen[-1].body["leaderboards"]["missing"] == 1


async def test_a_wall_clock_that_jumps_changes_no_age(world: World) -> None:
    """An hour ahead, then an hour back, in an outage: ages go on as they were, and so does the recovery."""
    world.clock.set(FIRST + DAY_S / 2)
    async with polling(world.port, [f"{DAY}/top"], clients=1, pause_s=0.05) as crowd:
        await soon(lambda: bool(crowd.seen))
        world.redis.freeze()
        await soon(lambda: crowd.seen[-1].stale)
        before = len(crowd.seen) - 1
        for hours in (1, -2):
            world.clock.shift_s += hours * 3600
            await asyncio.sleep(0.8)
        after = len(crowd.seen)
        world.redis.thaw()
        await soon(lambda: not crowd.seen[-1].stale)
    outage = crowd.seen[before:after]
    assert all(one.stale for one in outage)
    ages = [int(one.headers["leaderboard-stale"]) for one in outage]
    assert ages == sorted(ages)
    first, last = outage[0], outage[-1]
    assert last.sent - first.got - 1 <= ages[-1] - ages[0] <= last.got - first.sent + 1, (
        "whole seconds, as time went by"
    )
    assert last.got - first.sent < 60, "an hour's jump would show"
