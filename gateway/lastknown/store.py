"""The seam of durable stores: what is kept, under which name, and how a store fails.

Knows: names and blobs.
Must not know: folders, databases, buckets, or what a blob means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Shelf = Literal["last", "archive"]
"""What is kept: the last known state of a board, replaced again and again, or a finished period's final one."""

SHELVES: dict[str, Shelf] = {"last": "last", "archive": "archive"}


class Name(NamedTuple):
    """What a blob is of. ``label`` is the period's, empty for a board without periods."""

    shelf: Shelf
    leaderboard: str
    label: str = ""


class Kept(NamedTuple):
    """A blob, and the wall second at which its data was read."""

    blob: bytes
    as_of: float


class StoreError(Exception):
    """The store did not do what was asked; the message is for the log, and holds no credentials."""


class LastKnownStore(Protocol):
    """Blobs by name, surviving this process. Every method raises only ``StoreError``, and may take seconds.

    Cancelling a caller leaves either the former blob or the new one, whole.
    """

    async def put(self, name: Name, blob: bytes, as_of: float, *, unless_since: float | None = None) -> bool:
        """Keep a blob read at ``as_of``; False if what is kept is as young already, and then left alone.

        "As young" means read at ``unless_since`` or later; by default at ``as_of``. ``NEVER`` (minus infinity)
        leaves alone whatever is kept.
        """
        ...

    async def get(self, name: Name) -> Kept | None:
        """Return what is kept under this name; None also for what is torn, or not of this gateway."""
        ...

    async def entries(self, shelf: Shelf) -> Sequence[tuple[Name, float]]:
        """Return all names on a shelf, each with its ``as_of``."""
        ...

    async def delete(self, name: Name) -> None:
        """Forget a name; one that is not kept is no error."""
        ...

    async def close(self) -> None:
        """Let go of connections. Never raises."""
        ...


NEVER = float("-inf")

CLOCK_SKEW_S = 60.0
"""How far ahead of this instance's clock a blob may be read and still count as younger: one read under a clock that
was an hour fast must not keep newer ones away for that hour."""


def is_young(kept_as_of: float, since: float, wall: float) -> bool:
    """Tell whether what is kept was read at or after ``since``, by a believable clock."""
    return since <= kept_as_of and (kept_as_of <= wall + CLOCK_SKEW_S or since == NEVER)
