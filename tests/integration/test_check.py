"""``check``: what it prints of nodes and boards, what it finds wrong, and its exit status."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import RedisCluster, RedisGroup, RedisServer, free_port
from tests.servers.gateway import ROOT, toml

pytestmark = [pytest.mark.xdist_group("check"), pytest.mark.timeout(400)]

LIMITS = {"read_timeout_ms": 2500, "request_budget_ms": 3000, "max_lag_ms": 10_000}
"""With which a node that a busy machine stops for two seconds is neither away nor behind."""
GRACE = {"grace_ms": 3000}


def check(folder: Path, settings: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the exit status and the lines on standard output; nothing may stand on standard error."""
    config = folder / "gateway.toml"
    boards = [board if "read_from" in board else {**board, **GRACE} for board in settings["leaderboards"]]
    config.write_text(toml({"redis": {**settings["redis"], **LIMITS}, "leaderboards": boards}))
    command = [sys.executable, "-m", "gateway", "check", "--config", str(config)]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ended.stderr == ""
    return ended.returncode, [" ".join(line.split()) for line in ended.stdout.splitlines()]


def problems(lines: list[str]) -> list[str]:
    return [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]


def test_all_well_is_status_0_with_every_node_and_every_bound(redis_group: RedisGroup, tmp_path: Path) -> None:
    redis_group.write("ZADD", "lb:a", 1, "x", 2, "y")
    boards = [
        {"name": "a", "key": "lb:a"},
        {"name": "clan-<id>", "key": "clan:<id>:<period>", "period": "weekly"},
        {"name": "final", "key": "lb:final", "read_from": "primary"},
    ]
    status, lines = check(tmp_path, {"redis": redis_group.settings, "leaderboards": boards})
    version = redis_group.primary.info("server")["redis_version"]
    assert (status, problems(lines)) == (0, [])
    assert f"0 primary {redis_group.primary.address} up - - {version}" in lines
    for replica in redis_group.replicas:
        (line,) = [line for line in lines if f" {replica.address} " in line]
        assert re.fullmatch(rf"0 replica {replica.address} up \d+\.\d\d s up {version}", line)
    assert "a replicas none 2 34 s" in lines
    assert "clan-<id> replicas weekly - 34 s" in lines
    assert "final primary none 0 3 s" in lines


def test_a_replica_that_is_away_and_a_key_of_the_wrong_type_are_named(redis_group: RedisGroup, tmp_path: Path) -> None:
    redis_group.write("SET", "lb:s", "x")
    nobody = f"127.0.0.1:{free_port()}"
    redis = {"primary": redis_group.primary.url, "replicas": [redis_group.replicas[0].url, f"redis://{nobody}"]}
    status, lines = check(tmp_path, {"redis": redis, "leaderboards": [{"name": "s", "key": "lb:s"}]})
    assert status == 1
    assert problems(lines) == [
        f"replica {nobody} is down (Connection refused)",
        "s: What is stored for this leaderboard is not a leaderboard. (key lb:s)",
    ]


def test_nodes_that_are_not_what_the_settings_say_are_named_with_what_they_say(
    redis_group: RedisGroup, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    boards = [{"name": "s", "key": "lb:s"}]
    stranger = stack.enter_context(RedisServer(password="secret"))
    stranger.call("ACL", "SETUSER", "default", "nopass")
    primary = redis_group.primary.url
    status, lines = check(tmp_path, {"redis": {"primary": primary, "replicas": [stranger.url]}, "leaderboards": boards})
    assert (status, problems(lines)) == (
        1, [f"replica {stranger.address} is wrong role (it says that it is a primary)"]
    )  # fmt: skip
    stranger.call("ACL", "SETUSER", "default", "resetpass", ">secret")
    _, lines = check(tmp_path, {"redis": {"primary": stranger.url}, "leaderboards": boards})
    # For some seconds at a time: one that rests no more when it is looked at, since the machine stood still, is read.
    assert re.fullmatch(rf"(primary {stranger.address} is resting|s:) .*NOAUTH.*", problems(lines)[0])
    status, lines = check(tmp_path, {"redis": {"primary": primary, "replicas": [primary]}, "leaderboards": boards})
    assert (status, len(problems(lines))) == (1, 1)
    assert problems(lines)[0].startswith("redis.replicas stands for the primary alone")


def test_names_nobody_knows_and_a_cluster_or_sentinel_that_is_none_are_named(
    redis_group: RedisGroup, stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    boards = [{"name": "s", "key": "lb:s"}]
    replica = redis_group.replicas[0].url
    _, lines = check(
        tmp_path, {"redis": {"primary": "redis://nobody.invalid:6379/0", "replicas": [replica]}, "leaderboards": boards}
    )
    assert problems(lines)[0] == "the name nobody.invalid:6379 cannot be resolved"
    assert not any("stands for the primary" in problem for problem in problems(lines))
    sentinels = {"sentinels": [redis_group.primary.address], "service": "mine"}
    _, lines = check(tmp_path, {"redis": sentinels, "leaderboards": boards})
    assert problems(lines)[0].startswith("no Sentinel says where mine is")
    node = stack.enter_context(RedisServer(cluster=True))
    _, lines = check(tmp_path, {"redis": {"primary": node.url}, "leaderboards": boards})
    (problem,) = problems(lines)
    assert problem.endswith("(key lb:s, Redis says CLUSTERDOWN)")


def test_no_redis_at_all_is_status_1_and_not_a_trace(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    settings = {"redis": {"primary": f"redis://{nobody}"}, "leaderboards": [{"name": "s", "key": "lb:s"}]}
    status, lines = check(tmp_path, settings)
    assert status == 1
    assert problems(lines)[0] == f"primary {nobody} is down (Connection refused)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(node_timeout_ms=30_000) as servers:
        yield servers


def test_a_cluster_is_printed_shard_by_shard_and_its_uncovered_slots_are_named(
    cluster: RedisCluster, tmp_path: Path
) -> None:
    boards = [{"name": "a", "key": "{lb}:a", "profiles": "names"}]
    status, lines = check(tmp_path, {"redis": cluster.settings, "leaderboards": boards})
    assert (status, problems(lines)) == (0, [])
    assert sum(line.split()[:1] in (["0"], ["1"], ["2"]) for line in lines) == 6
    assert "note: a: board and profiles may lie in different slots, and are read in two trips" in lines
    owner = cluster.shards[2][0]
    owner.call("CLUSTER", "DELSLOTSRANGE", 16_000, 16_009)
    status, lines = check(tmp_path, {"redis": {"cluster": [owner.address]}, "leaderboards": boards})
    assert status == 1
    assert "nobody holds 10 of 16384 slots: 16000-16009" in problems(lines)


def test_bad_settings_are_status_2(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text("[redis]\n")
    command = [sys.executable, "-m", "gateway", "check", "--config", str(config)]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "leaderboards: is required" in ended.stderr
