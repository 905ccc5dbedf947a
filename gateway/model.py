"""The field's words as values: boards, targets, queries, entries, and what the origin says of them.

Knows: the vocabulary of the contract and the shapes that modules hand to each other.
Must not know: Redis commands, HTTP, JSON, or how anything is computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from gateway.periods import Calendar, Period

Order = Literal["desc", "asc"]
Ties = Literal["ordinal", "competition"]
ReadFrom = Literal["replicas", "primary"]
Kind = Literal["top", "ranks", "board", "member", "neighbors", "members"]
Outcome = Literal["hit", "joined", "miss", "stale", "failed"]

TOP_LIMIT = 100
"""The most entries one answer holds, and the size of the one snapshot that serves every smaller limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One configured leaderboard, or a family of them (``clan-<id>``).

    ``name`` and ``key`` are templates: ``<placeholder>`` stands for what the URL gave, ``<period>`` (in ``key``
    and ``profiles`` only) for the period's key part. Durations are seconds; the edge's are whole ones.
    """

    name: str
    key: str
    order: Order = "desc"
    ties: Ties = "ordinal"
    profiles: str | None = None
    ttl_s: float = 1.0
    grace_s: float = 1.0
    edge_ttl_s: int = 5
    client_ttl_s: int = 2
    stale_while_revalidate_s: int = 5
    stale_if_error_s: int = 3600
    read_from: ReadFrom = "replicas"
    finished: Literal["purgeable", "immutable"] = "purgeable"
    settle_s: float = 600.0
    """How long after its end a period counts as final."""
    cache_top: bool = True
    """False for boards read from the primary whose lives nobody set on purpose: their top is ``no-store``."""
    calendar: Calendar | None = None
    placeholders: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_family(self) -> bool:
        """Whether clients' requests decide which boards of this entry exist."""
        return bool(self.placeholders)


@dataclass(frozen=True, slots=True)
class Target:
    """A leaderboard as one request named it: the board, the name in the URL, the period, and its keys."""

    board: Board
    leaderboard: str
    key: bytes
    profiles_key: bytes | None = None
    period: Period | None = None

    @property
    def label(self) -> str | None:
        """The period's label, or None where the board has no periods."""
        return None if self.period is None else self.period.label

    @property
    def final_at(self) -> float:
        """The wall instant from which the period's scores count as final; infinite where that never comes."""
        return float("inf") if self.period is None else self.period.end + self.board.settle_s


class SnapshotKey(NamedTuple):
    """What a snapshot answers: places ``first`` to ``last`` (1-based, inclusive) of one board in one period."""

    leaderboard: str
    label: str | None
    first: int
    last: int


class Query(NamedTuple):
    """One read, canonical: two requests that mean the same are equal. (A tuple, as each member read makes one.)

    ``first`` and ``last`` are 1-based places, both included, for ``top`` (first is 1), ``ranks`` and ``board``
    (1 to 100). ``members`` holds one id for ``member`` and ``neighbors``, 1 to 100 distinct ones for ``members``.
    """

    kind: Kind
    target: Target
    first: int = 1
    last: int = TOP_LIMIT
    members: tuple[bytes, ...] = ()
    above: int = 5
    below: int = 5

    @property
    def snapshot_key(self) -> SnapshotKey:
        """The snapshot that serves this query: the board's top where it lies inside, else its own window."""
        target = self.target
        if self.last <= TOP_LIMIT:
            return SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT)
        return SnapshotKey(target.leaderboard, target.label, self.first, self.last)


class Entry(NamedTuple):
    """One row: 1-based rank, the member's bytes as Redis holds them, the score (may be infinite, never NaN)."""

    rank: int
    member: bytes
    score: float
    profile: bytes | None = None


class Stamp(NamedTuple):
    """When, and how surely, the origin was read.

    ``began`` is monotonic and is what ages count from. ``as_of`` is wall time: when the read was sent, whenever its
    reply was taken in, or, if ``stale``, the last instant at which the node that answered was known to be in step with
    its primary.
    """

    began: float
    as_of: float
    stale: bool = False


class Window(NamedTuple):
    """Consecutive entries and the board's size, from one instant of one node; no entries past the end."""

    stamp: Stamp
    total: int
    entries: Sequence[Entry]
    profiles_missing: bool = False
    """True where the board has profiles and they could not be read in time."""


class Standings(NamedTuple):
    """Some members' entries, sorted by rank, and who of those asked for is absent, in the order asked."""

    stamp: Stamp
    total: int
    entries: Sequence[Entry]
    missing: Sequence[bytes]
    profiles_missing: bool = False


class Origin(Protocol):
    """Where the read path reads on a miss. Every method is one round trip and one instant (profiles aside).

    All raise ``OriginUnavailable``, ``OriginTimeout``, ``WrongType`` or ``Overloaded``. ``total`` 0 means that
    the board's key is absent, confirmed by its primary; unconfirmable absence raises ``OriginUnavailable``.
    Cancelling a caller disturbs no other.
    """

    async def window(self, target: Target, first: int, last: int) -> Window:
        """Read places ``first`` to ``last`` (1-based, inclusive, at most 100 rows)."""
        ...

    async def member(self, target: Target, member: bytes) -> Standings:
        """Read one member's rank, score and the total; an absent member is under ``missing``."""
        ...

    async def neighbors(self, target: Target, member: bytes, above: int, below: int) -> Window:
        """Read the member with its neighbors, cut at the ends of the board; no entries if it is absent."""
        ...

    async def members(self, target: Target, members: Sequence[bytes]) -> Standings:
        """Read 1 to 100 distinct members at once."""
        ...
