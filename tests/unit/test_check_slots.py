"""What ``check`` says of a cluster's slots and of keys that could cross them."""

from __future__ import annotations

import re

import pytest

from gateway.check.slots import cluster_problems, slot_notes, tag_of
from gateway.model import Board
from gateway.replicas.login import Address
from gateway.replicas.slots import ClusterView, SlotRange

NODE = Address("127.0.0.1", 7000)


def view(*spans: tuple[int, int], whole: bool = True) -> ClusterView:
    return ClusterView(whole, 1, tuple(SlotRange(first, last, NODE, ()) for first, last in spans))


WHOLE = view((0, 16_383))


def test_a_whole_cluster_and_plain_keys_are_no_problem() -> None:
    boards = [Board(name="a", key="lb:a"), Board(name="b", key="{lb}:b"), Board(name="c", key="x{y}{z")]
    assert list(cluster_problems(WHOLE, boards)) == []


def test_uncovered_slots_are_named_with_the_boards_in_them() -> None:
    # CLUSTER KEYSLOT foo is 12182, of bar 5061.
    boards = [Board(name="a", key="foo"), Board(name="b", key="bar"), Board(name="c", key="foo<id>")]
    assert list(cluster_problems(view((0, 12_181), (12_183, 16_000), (16_002, 16_383), whole=False), boards)) == [
        "nobody holds 2 of 16384 slots: 12182, 16001",
        "a: its slot 12182 is among them",
        "the cluster says that it is not whole (CLUSTER INFO: cluster_state)",
    ]


def test_many_gaps_are_cut_short() -> None:
    gaps = view(*((slot, slot) for slot in range(0, 60, 2)), (60, 16_383))
    (problem,) = cluster_problems(gaps, [])
    assert problem == "nobody holds 30 of 16384 slots: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, …"


def test_no_view_at_all_is_a_problem() -> None:
    assert list(cluster_problems(None, [])) == ["no configured node knows of any slot"]


def test_templates_whose_keys_could_cross_slots_are_named() -> None:
    boards = [
        Board(name="a", key="lb:{}:a"),
        Board(name="b", key="lb:{a"),
        Board(name="c-<id>", key="c:<id>", placeholders={"id": re.compile(".+")}),
        Board(name="d-<id>", key="d:<id>", placeholders={"id": re.compile("[a-z]+")}),
    ]
    assert list(cluster_problems(WHOLE, boards)) == [
        "a: the braces in its key are no hash tag, so its keys could cross slots",
        "b: the braces in its key are no hash tag, so its keys could cross slots",
        "c-<id>: <id> may hold braces, so a client could choose in which slot a key lies",
    ]


def test_profiles_in_another_slot_are_a_note() -> None:
    boards = [
        Board(name="a", key="{lb}:a", profiles="{lb}:names"),
        Board(name="b", key="lb:b", profiles="names"),
        Board(name="c", key="lb:c"),
    ]
    (note,) = slot_notes(boards)
    assert note.startswith("note: b: ")


@pytest.mark.parametrize(
    ("key", "tag"), [("a", ""), ("a{b}c", "b"), ("a{}c{d}", ""), ("a}b{c}", "c"), ("{a{b}}", "a{b"), ("{<id>}", "<id>")]
)
def test_the_hash_tag_is_what_redis_takes(key: str, tag: str) -> None:
    assert tag_of(key) == tag
