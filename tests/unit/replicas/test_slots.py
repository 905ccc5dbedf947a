"""CLUSTER SLOTS and CLUSTER INFO become values, whatever form the hosts take."""

from __future__ import annotations

from typing import Any

from gateway.replicas.login import Address
from gateway.replicas.slots import SlotRange, best_of, view_of

ASKED = Address("10.0.0.9", 7000)


def node(host: bytes | None, port: int, *metadata: bytes) -> list[Any]:
    return [host, port, b"id", list(metadata)]


def one(primary: list[Any], *replicas: list[Any]) -> SlotRange:
    return view_of({}, [[0, 99, primary, *replicas]], ASKED).ranges[0]


def test_a_range_has_its_primary_and_its_replicas_once_each() -> None:
    held = one(node(b"10.0.0.1", 1), node(b"10.0.0.2", 2), node(b"10.0.0.2", 2), node(b"10.0.0.1", 1))
    assert held == SlotRange(0, 99, Address("10.0.0.1", 1), (Address("10.0.0.2", 2),))


def test_an_empty_host_means_the_host_that_was_asked() -> None:
    held = one(node(None, 1), node(b"", 2))
    assert (held.primary, held.replicas) == (Address("10.0.0.9", 1), (Address("10.0.0.9", 2),))


def test_an_unknown_host_name_is_replaced_by_the_address_beside_it_or_left_out() -> None:
    held = one(node(b"?", 1, b"ip", b"10.0.0.1"), node(b"?", 2))
    assert (held.primary, held.replicas) == (Address("10.0.0.1", 1), ())


def test_old_servers_send_neither_ids_nor_metadata() -> None:
    assert one([b"10.0.0.1", 1], [b"10.0.0.2", 2]).replicas == (Address("10.0.0.2", 2),)


def test_nodes_without_a_port_for_this_kind_of_connection_are_left_out() -> None:
    assert view_of({}, [[0, 99, node(b"10.0.0.1", 0)]], ASKED).ranges == ()


def test_a_whole_cluster_is_believed_before_a_newer_epoch_and_an_empty_map_never() -> None:
    slots = [[0, 99, node(b"10.0.0.1", 1)]]
    cut_off = view_of({"cluster_state": "fail", "cluster_current_epoch": "9"}, slots, ASKED)
    older = view_of({"cluster_state": "ok", "cluster_current_epoch": "7"}, slots, ASKED)
    newer = view_of({"cluster_state": "ok", "cluster_current_epoch": "8"}, slots, ASKED)
    alone = view_of({"cluster_state": "ok", "cluster_current_epoch": "99"}, [], ASKED)
    assert best_of([cut_off, older, newer, alone, None]) is newer
    assert best_of([alone, None]) is None
    assert newer.covered == 100
