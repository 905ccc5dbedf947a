"""Store: the snapshots of this process, bounded in entries and bytes.

Knows: slots by snapshot key, what was configured and what clients invented.
Must not know: freshness, loads, clocks, how a snapshot is encoded.

A slot outlives its snapshot's freshness on purpose: grace and outages need what is old. That rules out a ``TTLCache``,
which would throw away just that. Configured boards are pinned; all else is an LRU, so that names which clients
invent push out each other and never a configured board.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cachetools import LRUCache

from gateway.encode import Snapshot
from gateway.errors import GatewayError
from gateway.model import SnapshotKey

_SLOT_BYTES = 600
"""What a slot, its key and its place in the map take besides the content."""

_GROWN = 3
"""The least a slot weighs, in its rows: with one body and its compressed forms, which are made after it came in."""


@dataclass(slots=True)
class Slot:
    """What is known of one key: its snapshot, and how its last loads ended.

    ``error`` and ``failures`` describe the loads since the last good one; ``held_until`` is monotonic.
    ``restored``: the snapshot comes from a former process and nothing was loaded since. ``weighed`` is what it weighed
    when the store last looked.
    """

    snapshot: Snapshot | None = None
    failures: int = 0
    error: GatewayError | None = None
    held_until: float = 0.0
    restored: bool = False
    weighed: int = 0

    @property
    def size_bytes(self) -> int:
        """What the slot takes in memory."""
        return _SLOT_BYTES + (self.snapshot.content.size_bytes if self.snapshot else 0)


class Store:
    """Hold slots: any number of pinned ones, the others within ``max_entries`` and ``max_bytes``.

    Not for threads: everything happens on the event loop's thread, between two awaits.
    """

    def __init__(self, *, max_entries: int = 20_000, max_bytes: int = 128 * 2**20) -> None:
        self._pinned: dict[SnapshotKey, Slot] = {}
        self._pins: dict[str, SnapshotKey] = {}
        # One measure bounds both: a slot weighs its bytes, but never less than its share of the entries.
        self._least = max_bytes // max_entries
        self._others: LRUCache[SnapshotKey, Slot] = LRUCache(max_bytes, getsizeof=self._weigh)
        self.evicted = 0

    def _weigh(self, slot: Slot) -> int:
        rows_bytes = len(slot.snapshot.content.rows) if slot.snapshot else 0
        slot.weighed = max(slot.size_bytes, _GROWN * rows_bytes + _SLOT_BYTES, self._least)
        return slot.weighed

    def __len__(self) -> int:
        """Return how many slots there are."""
        return len(self._pinned) + len(self._others)

    @property
    def size_bytes(self) -> int:
        """What all slots take; walks them, so for gauges only."""
        return sum(slot.size_bytes for slot in self.slots())

    def slots(self) -> Iterator[Slot]:
        """Go through all slots."""
        yield from self._pinned.values()
        yield from self._others.values()

    def get(self, key: SnapshotKey) -> Slot | None:
        """Return the slot of this key, marked as used; one that grew since it was weighed may push others out."""
        slot = self._pinned.get(key)
        if slot is not None:
            return slot
        slot = self._others.get(key)
        if slot is not None and slot.size_bytes > slot.weighed:
            self._put_other(key, slot)
        return slot

    def put(self, key: SnapshotKey, slot: Slot, *, pinned: bool) -> None:
        """Keep this slot under this key, weighed anew.

        A leaderboard has one pinned key, its current period's top: a new one sends the former among the others. A slot
        that alone is over the bounds is not kept.
        """
        if pinned or key in self._pinned:
            former = self._pins.get(key.leaderboard)
            if former is not None and former != key:
                self._put_other(former, self._pinned.pop(former))
            self._others.pop(key, None)
            self._pins[key.leaderboard] = key
            self._pinned[key] = slot
        else:
            self._put_other(key, slot)

    def _put_other(self, key: SnapshotKey, slot: Slot) -> None:
        # Popped first: what a known key weighs is what it weighed when it came in, and a snapshot grows forms.
        self._others.pop(key, None)
        before = len(self._others)
        if self._weigh(slot) <= self._others.maxsize:
            self._others[key] = slot
            self.evicted += before + 1 - len(self._others)


def carry_over(former: Snapshot, new: Snapshot) -> None:
    """Keep what the new snapshot shares with the former one, and what would otherwise go back in time."""
    # By the monotonic clock: a wall clock set back in a failover would make all that is new look old.
    known_at = former.began - former.behind_s
    if new.stale and new.began - new.behind_s < known_at:
        # Read from a node that lags behind what was already served: keep the newer data, mark it all the same.
        new.content, new.as_of = former.content, former.as_of
        new.behind_s = max(0.0, new.began - known_at)
    elif new.content.same_as(former.content):
        new.content = former.content
        new.content.read_again()
