"""The slot map: what views and redirects make of it, without any server."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import cast

import pytest

from gateway.replicas.cluster import ClusterTopology
from gateway.replicas.discovery import Account
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Node, Nodes
from gateway.replicas.slots import ClusterView, SlotRange
from gateway.replicas.topology import Redirect
from tests.fakes import FakeClock

P1, P2, R1, R2, NEW = (Address("10.0.0.1", port) for port in (1, 2, 11, 12, 99))
VIEW = ClusterView(whole=True, epoch=3, ranges=(SlotRange(0, 8191, P1, (R1,)), SlotRange(8192, 16383, P2, (R2,))))


class NodesWithoutConnections:
    """The same node for the same address, while it is retained."""

    def __init__(self) -> None:
        self.known: dict[Address, Node] = {}

    def node(self, address: Address, login: Login) -> Node:
        assert login.readonly
        return self.known.setdefault(address, cast("Node", AddressOnly(address)))

    def retain(self, nodes: Iterable[Node]) -> None:
        kept = {node.address for node in nodes}
        self.known = {address: node for address, node in self.known.items() if address in kept}


class AddressOnly:
    """All that a topology needs of a node."""

    def __init__(self, address: Address) -> None:
        self.address = address


class Map(ClusterTopology):
    """A topology whose views are handed to it."""

    def __init__(self, clock: FakeClock) -> None:
        self.nodes = cast("Nodes", NodesWithoutConnections())
        super().__init__(self.nodes, [P1], login=Login(readonly=True), account=Account(), clock=clock, random=Random(1))

    def learn(self, view: ClusterView) -> None:
        self._apply(view)

    def moved(self, slot: int, address: Address) -> Node | None:
        return self.redirected(Redirect("MOVED", slot, address))

    def asked(self, slot: int, address: Address) -> Node | None:
        return self.redirected(Redirect("ASK", slot, address))

    def shown(self) -> list[tuple[Address | None, list[Address]]]:
        return [
            (shard.primary.address if shard.primary else None, [node.address for node in shard.replicas])
            for shard in self.shards()
        ]


@pytest.fixture
def slots() -> Map:
    """Give a map that has learnt two shards."""
    made = Map(FakeClock())
    made.learn(VIEW)
    return made


def test_before_anything_is_known_every_key_has_a_shard_without_nodes() -> None:
    shard = Map(FakeClock()).for_key(b"board")
    assert (shard.primary, shard.replicas) == (None, ())


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (b"{clan}:board", b"clan"),
        (b"lb:{clan}", b"{clan}:names"),
        (b"{}clan", b"{}clan"),
        (b"a{b}{c}", b"b"),
        (b"a{{b}}", b"{b"),
    ],
)
def test_a_hash_tag_decides_the_slot(slots: Map, key: bytes, same: bytes) -> None:
    assert slots.for_key(key) is slots.for_key(same)


def test_keys_go_to_the_shard_of_their_slot(slots: Map) -> None:
    # "foo" is slot 12182 and "bar" slot 5061, by CLUSTER KEYSLOT.
    assert slots.for_key(b"foo").primary is slots.nodes.node(P2, Login(readonly=True))
    assert slots.for_key(b"bar").primary is slots.nodes.node(P1, Login(readonly=True))


def test_a_refresh_that_says_the_same_keeps_the_same_shards(slots: Map) -> None:
    before = slots.shards()
    slots.learn(VIEW)
    assert [id(shard) for shard in slots.shards()] == [id(shard) for shard in before]


def test_a_moved_slot_goes_to_the_shard_of_the_node_named_and_no_other_slot_does(slots: Map) -> None:
    node = slots.moved(5061, P2)
    assert node is not None
    assert slots.for_key(b"bar").primary is node
    assert [held.address for held in slots.for_key(b"bar").replicas] == [R2]
    assert slots.shown() == [(P1, [R1]), (P2, [R2])]


def test_moved_to_a_replica_is_a_failover_of_its_whole_shard(slots: Map) -> None:
    slots.for_key(b"bar").answered_at = 1.5
    slots.moved(5061, R1)
    assert slots.shown() == [(R1, []), (P2, [R2])]
    assert slots.for_key(b"bar").answered_at == 1.5


def test_moved_to_an_unknown_node_makes_a_shard_for_that_slot(slots: Map) -> None:
    node = slots.moved(5061, NEW)
    assert slots.for_key(b"bar").primary is node
    assert (NEW, []) in slots.shown()


def test_ask_leaves_the_map_and_the_importing_node_is_kept_through_a_refresh(slots: Map) -> None:
    node = slots.asked(5061, NEW)
    assert node is not None
    slots.learn(VIEW)
    assert slots.shown() == [(P1, [R1]), (P2, [R2])]
    assert slots.asked(5061, NEW) is node


def test_slots_of_which_a_view_says_nothing_keep_their_shard(slots: Map) -> None:
    slots.learn(ClusterView(whole=False, epoch=4, ranges=VIEW.ranges[:1]))
    assert slots.shown() == [(P1, [R1]), (P2, [R2])]


def test_slots_that_a_whole_cluster_says_twice_that_nobody_holds_are_nobodys_until_somebody_has_them(
    slots: Map,
) -> None:
    without = ClusterView(
        whole=True, epoch=4, ranges=(SlotRange(0, 5060, P1, (R1,)), SlotRange(5062, 16383, P2, (R2,)))
    )
    slots.learn(without)
    assert slots.for_key(b"bar").primary is not None, "once may be a node that does not know yet"
    slots.learn(without)
    assert slots.for_key(b"bar").nodes == ()
    assert slots.shown() == [(P1, [R1]), (P2, [R2])], "which is no shard to report"
    slots.learn(VIEW)
    assert slots.for_key(b"bar").nodes


def test_a_failover_keeps_the_outage_clock_and_what_was_expected(slots: Map) -> None:
    slots.for_key(b"bar").answered_at = 1.5
    slots.learn(ClusterView(whole=True, epoch=4, ranges=(SlotRange(0, 8191, R1, ()), VIEW.ranges[1])))
    shard = slots.for_key(b"bar")
    assert shard.answered_at == 1.5
    assert shard.expects_replicas


def test_a_shard_that_never_had_a_replica_expects_none() -> None:
    slots = Map(FakeClock())
    slots.learn(ClusterView(whole=True, epoch=1, ranges=(SlotRange(0, 16383, P1, ()),)))
    assert not slots.for_key(b"bar").expects_replicas
