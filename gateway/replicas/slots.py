"""Slots: what CLUSTER SLOTS and CLUSTER INFO say, as values.

Knows: the shapes of the two replies.
Must not know: whom to ask, shards, connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.replicas.login import Address

SLOTS = 16_384


class SlotRange(NamedTuple):
    """Consecutive slots, both ends included, with their primary and its replicas."""

    first: int
    last: int
    primary: Address
    replicas: tuple[Address, ...]


class ClusterView(NamedTuple):
    """What one node says of the cluster: whether it is whole, of which epoch this is, and who holds what."""

    whole: bool
    epoch: int
    ranges: tuple[SlotRange, ...]

    @property
    def covered(self) -> int:
        """How many slots have somebody."""
        return sum(held.last - held.first + 1 for held in self.ranges)

    def unheld(self) -> set[int]:
        """Return the slots that nobody holds."""
        if self.covered >= SLOTS:
            return set()
        return set(range(SLOTS)).difference(*(range(held.first, held.last + 1) for held in self.ranges))


def best_of(views: Iterable[ClusterView | None]) -> ClusterView | None:
    """Return the view to believe: of a whole cluster, of the newest epoch, with the most slots; none without any slot.

    A minority that was cut off knows that it is (its state is "fail") and has the older epoch.
    """
    found = [view for view in views if view is not None and view.ranges]
    return max(found, key=lambda view: (view.whole, view.epoch, view.covered), default=None)


def view_of(info: Mapping[str, str], slots: Sequence[Any], asked: Address) -> ClusterView:
    """Return a view from the replies to CLUSTER INFO (as a mapping) and CLUSTER SLOTS (raw, RESP2)."""
    ranges = (_range_of(item, asked) for item in slots)
    whole = info.get("cluster_state") == "ok"
    return ClusterView(whole, int(info.get("cluster_current_epoch", 0)), tuple(held for held in ranges if held))


def _range_of(item: Sequence[Any], asked: Address) -> SlotRange | None:
    first, last, primary, *replicas = item
    at = _address_of(primary, asked)
    if at is None:
        return None
    found = dict.fromkeys(_address_of(replica, asked) for replica in replicas)
    return SlotRange(int(first), int(last), at, tuple(where for where in found if where is not None and where != at))


def _address_of(node: Sequence[Any], asked: Address) -> Address | None:
    """Return ``[host, port, id, [metadata…]]`` as an address.

    No host (nil or empty) means the host that was asked; ``?`` a host name that is not known yet, beside which the
    metadata may hold the IP address. Port 0 is a node that does not listen for connections of this kind (TLS or not).
    """
    host, port = node[0], int(node[1])
    if port == 0:
        return None
    if not host:
        return Address(asked.host, port)
    if host == b"?":
        metadata = node[3] if len(node) > 3 else ()
        host = dict(zip(metadata[::2], metadata[1::2], strict=False)).get(b"ip")
    return Address(host.decode(), port) if host else None
