"""All three shapes over TLS, with users that may do exactly what the README lists, passwords from files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError
from tests import accounts
from tests.accounts import CLUSTER_ACCOUNT, FIXED_ACCOUNT, PASSWORD, USER
from tests.origins import RealOrigin, board, origin_at, rank, soon
from tests.servers import Certificates, RedisCluster, RedisGroup, RedisServer, SentinelGroup

pytestmark = pytest.mark.xdist_group("tls_acl")

ADMIN = "the-administrators"

PATIENT = {"read_timeout_ms": 15_000, "request_budget_ms": 30_000, "max_lag_ms": 60_000}
"""For ``[redis]``: a machine that stands still for a moment must not look like a node that failed."""


@pytest.fixture(autouse=True)
def patience_for_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for profiles, too: 50 ms, as shipped, are over while the machine does something else."""
    monkeypatch.setattr("gateway.layouts.profiles.WITHIN_S", 30.0)


@pytest.fixture
def secured(certificates: Certificates, tmp_path: Path) -> Mapping[str, Any]:
    """Give the settings of an account over TLS."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return {
        "username": USER,
        "password_file": str(tmp_path / "password"),
        "tls": True,
        "tls_ca_file": str(certificates.ca),
        **PATIENT,
    }


async def all_up(origin: RealOrigin, nodes: int) -> None:
    """Wait until every node is up: until then the primary stands in for others, and profiles may be left out."""
    await soon(lambda: list(origin.states().values()) == ["up"] * nodes, within_s=30)


def fill(where: RedisGroup | RedisCluster | RedisServer) -> None:
    write = where.call if isinstance(where, RedisServer) else where.write
    write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    write("HSET", "names", "bob", "Bob")


async def read_everything(origin: RealOrigin) -> None:
    """Ask every kind of question once, of a board in each order and tie rule, and of one that is absent."""
    ascending = board("s", order="asc", ties="competition", profiles="names")
    assert rank(await origin.member(board("s"), b"bob")) == 2
    assert rank(await origin.member(ascending, b"ann")) == 1
    for target in (board("s"), ascending):
        assert (await origin.window(target, 1, 10)).total == 3
        assert len((await origin.neighbors(target, b"bob", 1, 1)).entries) == 3
        assert len((await origin.members(target, [b"ann", b"bob", b"x"])).entries) == 2
    window = await origin.window(ascending, 1, 3)
    assert not window.profiles_missing
    assert window.entries[1].profile == b"Bob"
    assert rank(await origin.member(board("s", read_from="primary"), b"bob")) == 2
    assert (await origin.window(board("absent"), 1, 10)).total == 0


def refusals(nodes: list[RedisServer]) -> list[str]:
    """Return what the ACL refused on any node."""
    return [repr(entry) for node in nodes for entry in node.call("ACL", "LOG") if USER in repr(entry)]


async def test_one_primary_and_replicas(
    stack: contextlib.ExitStack, secured: Mapping[str, Any], certificates: Certificates
) -> None:
    group = stack.enter_context(RedisGroup(1, tls=certificates, password=ADMIN, acl=[FIXED_ACCOUNT]))
    fill(group)
    async with origin_at({**group.settings, **secured}) as origin:
        await all_up(origin, 2)
        await read_everything(origin)
    assert not refusals(group.nodes)


async def test_sentinel_with_an_account_of_its_own(
    stack: contextlib.ExitStack, secured: Mapping[str, Any], certificates: Certificates, tmp_path: Path
) -> None:
    group = stack.enter_context(
        SentinelGroup(
            1,
            tls=certificates,
            password=ADMIN,
            acl=[FIXED_ACCOUNT],
            down_after_ms=60_000,
            sentinel_password="the-sentinels",
            sentinel_acl=[accounts.SENTINEL_ACCOUNT.replace(PASSWORD, "another")],
        )
    )
    fill(group)
    (tmp_path / "sentinel").write_text("another")
    sentinel = {"sentinel_username": USER, "sentinel_password_file": str(tmp_path / "sentinel")}
    async with origin_at({**group.settings, **secured, **sentinel}) as origin:
        await all_up(origin, 2)
        await read_everything(origin)
        promoted = group.failover()
        await soon(lambda: origin.roles().get(promoted.address) == "primary", within_s=30)
        await all_up(origin, 2)
        await read_everything(origin)
    assert not refusals([*group.nodes, *group.sentinels])


async def test_cluster(stack: contextlib.ExitStack, secured: Mapping[str, Any], certificates: Certificates) -> None:
    cluster = stack.enter_context(
        RedisCluster(tls=certificates, password=ADMIN, acl=[CLUSTER_ACCOUNT], node_timeout_ms=60_000)
    )
    fill(cluster)
    async with origin_at({**cluster.settings, **secured}) as origin:
        await all_up(origin, 6)
        await read_everything(origin)
        source = cluster.owner("s")
        target = cluster.other_primary(source)
        cluster.begin_migration("s", target)
        cluster.move_keys("s", source, target)
        assert rank(await origin.member(board("s", read_from="primary"), b"bob")) == 2
        assert target.commandstats()["asking"] >= 1
        cluster.end_migration("s", target)
        await read_everything(origin)
    assert not refusals(cluster.nodes)


async def test_every_listed_command_is_used_and_reads_fail_without_theirs(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    server = stack.enter_context(RedisServer(acl=[FIXED_ACCOUNT]))
    fill(server)
    (tmp_path / "password").write_text(PASSWORD)
    replica = stack.enter_context(RedisServer(acl=[FIXED_ACCOUNT], replicaof=server))
    nodes = [server, replica]
    settings = {
        "primary": server.url,
        "replicas": [replica.url],
        "username": USER,
        "password_file": str(tmp_path / "password"),
        **PATIENT,
    }
    optional: list[str] = []
    for word in f"{accounts.READS} {accounts.HEALTH}".split():
        for node in nodes:
            node.call("ACL SETUSER", USER, "-" + word[1:])
            node.call("SCRIPT", "FLUSH")
            node.call("ACL", "LOG", "RESET")
        async with origin_at(settings) as origin:
            with contextlib.suppress(GatewayError, AssertionError):
                await read_everything(origin)
                optional.append(word)
            await soon(lambda: bool(refusals(nodes)), what=f"{word} is used")
        for node in nodes:
            node.call("ACL SETUSER", USER, word)
    assert set(optional) == set(accounts.HEALTH.split()), "without those, reads go on, with less choice"


async def test_a_database_other_than_0_needs_select_besides(stack: contextlib.ExitStack, tmp_path: Path) -> None:
    server = stack.enter_context(RedisServer(acl=[FIXED_ACCOUNT + " " + accounts.DATABASE]))
    server.call("SELECT", 3)
    fill(server)
    (tmp_path / "password").write_text(PASSWORD)
    settings = {"primary": f"redis://{server.address}/3", "username": USER, "password_file": str(tmp_path / "password")}
    async with origin_at({**settings, **PATIENT}) as origin:
        await read_everything(origin)
    assert not refusals([server])


async def test_a_certificate_of_an_unknown_authority_is_refused(
    stack: contextlib.ExitStack, secured: Mapping[str, Any], certificates: Certificates
) -> None:
    server = stack.enter_context(RedisServer(tls=certificates, password=ADMIN, acl=[FIXED_ACCOUNT]))
    stranger = stack.enter_context(Certificates())
    async with origin_at({"primary": server.url, **secured, "tls_ca_file": str(stranger.ca)}) as origin:
        assert origin.states() == {server.address: "down"}
