"""Store: configured boards stay, all else is bounded in entries and bytes."""

from __future__ import annotations

import random

from gateway.encode import Content, Snapshot
from gateway.model import SnapshotKey
from gateway.store import Slot, Store


def key(name: str, label: str | None = None) -> SnapshotKey:
    return SnapshotKey(name, label, 1, 100)


def slot(rows_bytes: int = 100) -> Slot:
    content = Content(b'{"as_of":"', 1, [b"x" * rows_bytes], 1, 0.0)
    return Slot(Snapshot(key("any"), content, began=0.0, as_of=0.0))


def test_names_that_clients_invent_push_out_each_other_and_never_a_configured_board() -> None:
    store = Store(max_entries=50, max_bytes=10**6)
    store.put(key("downloads"), slot(), pinned=True)
    for n in range(1_000):
        store.put(key(f"clan-{n}"), slot(), pinned=False)
    assert store.get(key("downloads")) is not None
    assert len(store) == 51
    assert store.get(key("clan-999")) is not None
    assert store.get(key("clan-0")) is None
    assert store.evicted == 950


def test_the_least_recently_used_goes_first() -> None:
    store = Store(max_entries=2, max_bytes=10**6)
    store.put(key("a"), slot(), pinned=False)
    store.put(key("b"), slot(), pinned=False)
    assert store.get(key("a")) is not None
    store.put(key("c"), slot(), pinned=False)
    assert store.get(key("b")) is None
    assert store.get(key("a")) is not None


def test_bytes_are_bounded_though_entries_are_few() -> None:
    store = Store(max_entries=1_000, max_bytes=100_000)
    for n in range(100):
        store.put(key(f"clan-{n}"), slot(10_000), pinned=False)
    assert store.size_bytes <= 100_000
    assert 0 < len(store) < 10


def test_a_slot_over_the_bounds_is_not_kept_and_pushes_nothing_out() -> None:
    store = Store(max_entries=100, max_bytes=50_000)
    store.put(key("small"), slot(), pinned=False)
    store.put(key("huge"), slot(60_000), pinned=False)
    assert store.get(key("huge")) is None
    assert store.get(key("small")) is not None


def test_a_slot_that_grew_is_weighed_anew() -> None:
    store = Store(max_entries=100, max_bytes=50_000)
    grown = slot(100)
    store.put(key("grown"), grown, pinned=False)
    grown.snapshot = slot(60_000).snapshot
    store.put(key("grown"), grown, pinned=False)
    assert store.size_bytes <= 50_000


def test_slots_that_grow_by_the_bodies_asked_of_them_stay_within_the_bytes() -> None:
    bound = 1_000_000
    store = Store(max_entries=1_000, max_bytes=bound)
    for n in range(40):
        rows = [b'{"member":"%b"}' % random.Random(f"{n}-{row}").randbytes(50).hex().encode() for row in range(100)]
        content = Content(b'{"as_of":"', 1, rows, 100, 0.0)
        store.put(key(f"clan-{n}"), Slot(Snapshot(key("any"), content, began=0.0, as_of=0.0)), pinned=False)
        for limit in range(100, 90, -1):
            found = store.get(key(f"clan-{n}"))
            assert found is not None
            assert found.snapshot is not None
            rendering = found.snapshot.content.rendering(1, limit, stale=False)
            rendering.form("gzip")
            rendering.form("br")
        assert store.size_bytes <= bound * 1.1
    assert len(store) > 3


def test_a_new_period_unpins_the_former_one() -> None:
    store = Store(max_entries=1, max_bytes=10**6)
    store.put(key("weekly", "2026-W12"), slot(), pinned=True)
    store.put(key("weekly", "2026-W13"), slot(), pinned=True)
    assert len(store) == 2
    store.put(key("clan-1"), slot(), pinned=False)
    assert store.get(key("weekly", "2026-W12")) is None
    assert store.get(key("weekly", "2026-W13")) is not None


def test_a_key_that_was_stored_before_it_was_pinned_is_there_once() -> None:
    store = Store()
    store.put(key("weekly", "2026-W13"), slot(), pinned=False)
    store.put(key("weekly", "2026-W13"), slot(), pinned=True)
    store.put(key("weekly", "2026-W13"), slot(), pinned=False)
    assert len(store) == 1
    assert len(list(store.slots())) == 1
