"""Redis away under load, the gateway as processes: the top never fails, and every answer says how old it is.

``OUTAGE_SECONDS=60`` makes each outage the minute it stands for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.fault.polling import Crowd, Seen, polling
from tests.fault.proxy import FaultProxy, ThreadedProxy
from tests.servers import Gateway, RedisGroup, eventually

pytestmark = pytest.mark.xdist_group("outage")

OUTAGE_S = float(os.environ.get("OUTAGE_SECONDS", "2.5"))
TTL_MS, GRACE_MS, BUDGET_MS, ATTEMPT_MS = 200, 600, 500, 200
TTL_S, GRACE_S, BUDGET_S, ATTEMPT_S = (number / 1000 for number in (TTL_MS, GRACE_MS, BUDGET_MS, ATTEMPT_MS))
MEMBERS = 300
RACE = "/v1/leaderboards/race"
CACHED = [f"{RACE}/top", f"{RACE}/top?limit=3", f"{RACE}/ranks?from=5&to=9", f"{RACE}/ranks?from=101&to=120"]
INSIDE = [f"{RACE}/members/m007", f"{RACE}/members/m050/neighbors", f"{RACE}/members?member=m001&member=m099"]
OUTSIDE = [f"{RACE}/members/m250", f"{RACE}/members/m099/neighbors"]
TARGETS = [*CACHED, *INSIDE, *OUTSIDE]
RECOVERY_S = 2.0 + TTL_S
SLACK_S = 0.5
"""What a machine that does other things besides may add."""


class World(NamedTuple):
    """Two nodes, a proxy in front of each, and a gateway that knows the proxies."""

    redis: RedisGroup
    proxies: list[ThreadedProxy]
    gateway: Gateway


@pytest.fixture(scope="module", params=[1, 4], ids=["1-worker", "4-workers"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisGroup(replicas=1))
        redis.write("ZADD", "lb:race", *(part for n in range(1, MEMBERS + 1) for part in (1000 - n, f"m{n:03}")))
        proxies = [stack.enter_context(ThreadedProxy(node.port)) for node in redis.nodes]
        primary, replica = (f"redis://{proxy.address}" for proxy in proxies)
        limits = {"read_timeout_ms": ATTEMPT_MS, "request_budget_ms": BUDGET_MS}
        settings = {
            "server": {"workers": request.param},
            "redis": {"primary": primary, "replicas": [replica], **limits},
            "leaderboards": [{"name": "race", "key": "lb:race", "ttl_ms": TTL_MS, "grace_ms": GRACE_MS}],
        }
        yield World(redis, proxies, stack.enter_context(Gateway(settings)))


def stop(world: World) -> None:
    world.redis.primary.call("SAVE")
    for node in world.redis.nodes:
        node.kill()


def start(world: World) -> None:
    for node in world.redis.nodes:
        node.start()


def freeze(world: World) -> None:
    for node in world.redis.nodes:
        node.freeze()


def thaw(world: World) -> None:
    for node in world.redis.nodes:
        node.thaw()


def cut(world: World) -> None:
    for proxy in world.proxies:
        proxy.do(FaultProxy.drop)


def mend(world: World) -> None:
    for proxy in world.proxies:
        proxy.do(FaultProxy.heal)


@pytest.mark.parametrize(
    ("away", "back"), [(stop, start), (freeze, thaw), (cut, mend)], ids=["stopped", "frozen", "cut"]
)
async def test_no_read_of_the_top_fails_and_every_answer_says_how_old_it_is(
    world: World, away: Callable[[World], None], back: Callable[[World], None]
) -> None:
    """500 reads a second of the top, ranks and members before, during and after; each answer is checked."""
    eventually(lambda: all(not_stale(world.gateway, target) for target in TARGETS * 4), what="all is well")
    async with polling(world.gateway.port, TARGETS, clients=25, pause_s=0.05) as crowd:
        await asyncio.sleep(0.5)
        before = time.time()
        await asyncio.to_thread(away, world)
        gone = time.time()
        await asyncio.sleep(OUTAGE_S)
        ends = time.time()
        await asyncio.to_thread(back, world)
        returned = time.time()
        await asyncio.sleep(RECOVERY_S + SLACK_S + 0.5)
    for one in crowd.seen:
        check(one)
    assert not any(one.stale for one in crowd.since(0, before - SLACK_S))
    check_outage(crowd, gone, ends)
    check_recovery(crowd, returned)


def not_stale(gateway: Gateway, target: str) -> bool:
    status, headers, _ = gateway.get(target)
    return status == 200 and "leaderboard-stale" not in headers


def check(one: Seen) -> None:
    """Hold an answer to what is true whenever it comes."""
    if one.target not in OUTSIDE:
        assert one.status == 200, one
    if one.status != 200:
        assert one.status in {503, 504}, one
        assert one.headers["cache-control"] == "no-store"
        assert one.status == 504 or int(one.headers["retry-after"]) >= 1
        return
    rows = [one.body] if "rank" in one.body else one.body["entries"]
    assert len(rows) == {f"{RACE}/top": 100, f"{RACE}/top?limit=3": 3}.get(one.target, len(rows))
    assert rows, one
    assert all(f"m{row['rank']:03}" == row["member"] and row["score"] == 1000 - row["rank"] for row in rows)
    assert one.body["total"] == MEMBERS
    age = one.got - one.as_of
    if one.stale:
        assert -0.1 <= age - int(one.headers["leaderboard-stale"]) <= 1 + SLACK_S
        assert one.target not in CACHED or one.headers["cache-control"].startswith("public, max-age=2,")
    else:
        assert age <= TTL_S + GRACE_S + BUDGET_S + SLACK_S


def check_outage(crowd: Crowd, gone: float, ends: float) -> None:
    """Once what was in grace has run out, everything is marked, nothing is newer than the outage, nobody waits."""
    settled = crowd.since(gone + TTL_S + GRACE_S + BUDGET_S + SLACK_S, ends)
    assert {one.target for one in settled} == set(TARGETS)
    etags = set()
    for one in settled:
        if one.target in OUTSIDE:
            assert one.status == 503, one
            continue
        assert one.stale, one
        assert one.as_of <= gone + 0.001, one  # as_of is rounded to milliseconds
        etags.add((one.target, one.headers.get("etag")))
    assert len(etags) == len(CACHED) + len(INSIDE), "the answers of all workers are the same"
    # Who waited for a try would wait that long, and a try is under way for a fifth of each second or more.
    waits = sorted(one.seconds for one in settled)
    assert waits[int(len(waits) * 0.9)] < ATTEMPT_S, "nobody waits for Redis after the first failure"
    assert max(one.seconds for one in crowd.since(0, ends)) < BUDGET_S + 2 * SLACK_S


def check_recovery(crowd: Crowd, returned: float) -> None:
    """Two seconds after Redis is back nothing is stale, and nothing fails."""
    recovered = crowd.since(returned + RECOVERY_S + SLACK_S)
    assert {one.target for one in recovered} == set(TARGETS)
    for one in recovered:
        assert one.status == 200, one
        assert not one.stale, one
        assert one.as_of > returned
