"""Fixed nodes: names that stand for several nodes, move, vanish; a failover that somebody else made."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import cast

import pytest

from gateway.replicas import fixed
from gateway.replicas.connection import Connection
from gateway.replicas.fixed import FixedTopology
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Node
from gateway.replicas.topology import Redirect
from tests.fakes import FakeClock, settle
from tests.unit.replicas.stubs import Dialler, StubConnection, make_nodes

PRIMARY, READERS = Address("primary", 6379), Address("readers", 6379)


class Names:
    """A name server."""

    def __init__(self) -> None:
        self.table = {"primary": ["10.0.0.1"], "readers": ["10.0.0.2", "10.0.0.3"]}
        self.faults: dict[str, Exception] = {}
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def resolve(self, address: Address) -> Sequence[Address]:
        self.asked += 1
        await self.gate.wait()
        if address.host in self.faults:
            raise self.faults[address.host]
        return [Address(host, address.port) for host in self.table.get(address.host, [])]


class Rig:
    def __init__(self, login: Login | None = None, replicas: Sequence[Address] = (READERS,)) -> None:
        self.clock, self.names, self.dialler = FakeClock(), Names(), Dialler()
        self.dialler.refuse = None
        self.nodes = make_nodes(self.clock, self.dialler)
        self.topology = FixedTopology(
            self.nodes, PRIMARY, replicas, login or Login(), clock=self.clock, resolve=self.names.resolve
        )

    def hosts(self) -> list[str]:
        return [node.address.host for node in self.topology.for_key(b"k").nodes]

    async def again(self) -> None:
        """Have the names resolved anew, as a node in trouble does."""
        self.topology._refresher.wake()
        await self.clock.elapse(0.5)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_name_that_stands_for_several_nodes_is_several_replicas(rig: Rig) -> None:
    await rig.topology.start()
    assert rig.hosts() == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert rig.topology.shards() == (rig.topology.for_key(b"k"),)
    assert rig.topology.for_key(b"k").expects_replicas
    await rig.topology.stop()
    await rig.nodes.close()


async def test_names_are_resolved_anew_when_a_node_is_in_trouble_and_kept_nodes_stay_the_same(rig: Rig) -> None:
    await rig.topology.start()
    before = {node.address.host: node for node in rig.topology.for_key(b"k").nodes}
    rig.names.table["readers"] = ["10.0.0.3", "10.0.0.4"]
    await rig.again()
    assert rig.hosts() == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
    assert before["10.0.0.3"] in rig.topology.for_key(b"k").nodes
    assert before["10.0.0.2"] not in rig.nodes.all()
    await rig.topology.stop()
    await rig.nodes.close()


async def test_trouble_in_floods_is_one_resolution_a_pause(rig: Rig) -> None:
    await rig.topology.start()
    asked = rig.names.asked
    for _ in range(1000):
        rig.topology.troubled(rig.topology.for_key(b"k").nodes[0])
    await rig.clock.elapse(1.0)
    assert rig.names.asked == asked + 2, "two names, once"
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_name_that_cannot_be_resolved_keeps_its_nodes(rig: Rig) -> None:
    await rig.topology.start()
    rig.names.table.clear()
    await rig.again()
    assert rig.hosts() == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    await rig.topology.stop()
    await rig.nodes.close()


async def test_whatever_resolving_one_name_raises_loses_no_other_name(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(replicas=(READERS, Address("broken", 6379)))
    rig.names.faults["broken"] = ZeroDivisionError()
    await rig.topology.start()
    await rig.clock.elapse(2.0)
    assert rig.hosts() == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert caplog.text.count("the name broken:6379 cannot be resolved") == 1
    assert caplog.text.count("ZeroDivisionError") == 1, "a fault of ours is shown, once"
    del rig.names.faults["broken"]
    rig.names.table["broken"] = ["10.0.0.4"]
    await rig.again()
    assert rig.hosts()[-1] == "10.0.0.4"
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_start_without_a_name_server_is_a_shard_without_nodes_until_there_is_one(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.names.table, table = {}, rig.names.table
    await rig.topology.start()
    assert rig.hosts() == []
    assert len(caplog.records) == 2
    rig.names.table = table
    await rig.clock.elapse(1.0)
    assert len(rig.hosts()) == 3
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_reader_name_that_stands_for_the_primary_too_makes_it_no_replica(rig: Rig) -> None:
    rig.names.table["readers"].append("10.0.0.1")
    await rig.topology.start()
    assert rig.hosts() == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_replica_that_was_promoted_takes_the_place_of_a_primary_that_is_gone_and_gives_it_back(
    rig: Rig,
) -> None:
    await rig.topology.start()
    await settle()
    primary, promoted, _ = rig.topology.for_key(b"k").nodes
    primary.health.role = "primary"
    promoted.health.role = "primary"
    rig.topology.contradicted(promoted, "primary")
    assert rig.topology.for_key(b"k").primary is primary, "two primaries: the configured one counts"
    primary.health.role = "replica"
    rig.topology.contradicted(primary, "replica")
    assert rig.topology.for_key(b"k").primary is promoted
    assert primary in rig.topology.for_key(b"k").replicas, "it was demoted, and is read like any other"
    promoted.health.role, primary.health.role = "replica", "primary"
    rig.topology.contradicted(promoted, "replica")
    assert rig.topology.for_key(b"k").primary is primary
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_primary_of_other_data_never_takes_the_place_of_ours(rig: Rig) -> None:
    await rig.topology.start()
    await settle()
    primary, stranger, promoted = rig.topology.for_key(b"k").nodes
    primary.health.role, stranger.health.role, stranger.health.stranger = "replica", "primary", True
    rig.topology.contradicted(stranger, "primary")
    assert rig.topology.for_key(b"k").primary is primary
    promoted.health.role = "primary"
    rig.topology.contradicted(promoted, "primary")
    assert rig.topology.for_key(b"k").primary is promoted
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_primary_whose_place_is_taken_stays_watched_while_it_is_down(rig: Rig) -> None:
    await rig.topology.start()
    await settle()
    primary, promoted, _ = rig.topology.for_key(b"k").nodes
    primary.health.role = promoted.health.role = "primary"
    rig.dialler.refuse = ConnectionRefusedError(111, "Connection refused")
    primary.connection_lost(primary.ready[0])
    rig.topology.contradicted(promoted, "primary")
    assert rig.topology.for_key(b"k").primary is promoted
    assert primary in rig.topology.for_key(b"k").replicas
    await rig.topology.stop()
    await rig.nodes.close()


async def test_the_outage_clock_runs_on_when_nodes_change(rig: Rig) -> None:
    await rig.topology.start()
    answered_at = rig.topology.for_key(b"k").answered_at
    rig.clock.advance(10)
    rig.names.table["readers"] = ["10.0.0.9"]
    await rig.again()
    assert rig.topology.for_key(b"k").answered_at == answered_at
    await rig.topology.stop()
    await rig.nodes.close()


async def test_certificates_are_checked_against_the_name_that_was_configured() -> None:
    rig = Rig(Login(tls=ssl.create_default_context()))
    await rig.topology.start()
    names = {node.address.host: node.login.tls_name for node in rig.topology.for_key(b"k").nodes}
    assert names == {"10.0.0.1": "primary", "10.0.0.2": "readers", "10.0.0.3": "readers"}
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_name_server_that_hangs_does_not_keep_the_gateway_from_starting(rig: Rig) -> None:
    rig.names.gate.clear()
    starting = asyncio.ensure_future(rig.topology.start())
    await rig.clock.elapse(fixed.PATIENCE_S)
    assert starting.done()
    assert rig.hosts() == []
    rig.names.gate.set()
    await settle()
    assert len(rig.hosts()) == 3
    await rig.topology.stop()
    await rig.nodes.close()


async def test_a_name_with_addresses_of_both_families_counts_by_the_one_that_answers(rig: Rig) -> None:
    rig.names.table = {"primary": ["10.0.0.1", "::1"], "readers": ["10.0.0.2", "::2"]}
    rig.dialler.refuse = ConnectionRefusedError(111, "Connection refused")
    await rig.topology.start()
    assert rig.hosts() == ["10.0.0.1", "10.0.0.2", "::2"], "nobody has answered yet"
    for node in rig.nodes.all():
        if ":" in node.address.host:
            node.ready.append(cast("Connection", StubConnection()))
    await rig.again()
    assert rig.hosts() == ["::1", "::2"]
    assert len(rig.nodes.all()) == 2
    await rig.again()
    assert len(rig.nodes.all()) == 2, "the other family is not tried over and over"
    for node in rig.nodes.all():
        node.ready.clear()
    await rig.again()
    assert len(rig.nodes.all()) == 4, "until the one that answered does no more"
    await rig.topology.stop()
    await rig.nodes.close()


async def test_redirects_lead_nowhere(rig: Rig) -> None:
    assert rig.topology.redirected(Redirect("MOVED", 1, PRIMARY)) is None
    assert str(Address("::1", 7)) == "[::1]:7"


def test_secrets_are_in_no_repr() -> None:
    assert "hunter2" not in repr(Login(username="hunter2", password="hunter2"))


def test_nodes_are_named_by_address_in_logs() -> None:
    async def name() -> str:
        return repr(Node(make_nodes(), Address("10.0.0.1", 1), Login(password="x")))

    assert asyncio.run(name()) == "Node(10.0.0.1:1)"
