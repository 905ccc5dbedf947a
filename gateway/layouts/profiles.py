"""Profiles: the text or JSON shown beside each row, from a hash, kept for a few seconds.

Knows: one hash of member → value, how large a value may be, how long one is kept.
Must not know: ranks, scores, what the values say.

Profiles are decoration: they come in a second trip, and whatever goes wrong with them leaves the rows as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cachetools import TTLCache

from gateway.clock import Clock
from gateway.errors import OriginError, WrongType
from gateway.jsontext import PROFILE_LIMIT_BYTES
from gateway.model import Entry
from gateway.replicas.commands import Plain
from gateway.replicas.reads import ReplicaReads

KEPT_S = 10.0
WITHIN_S = 0.05
"""The most that profiles may add to a read: a quarter of an attempt, so that a rank is not late for its decoration."""
KEPT_BYTES = 8 * 1024 * 1024
ENTRY_BYTES = 256
"""What an entry costs beside its value and member; it bounds the entries, too: 32,768."""

_UNKNOWN: Final = object()


def _size(value: bytes | None) -> int:
    return ENTRY_BYTES + (len(value) if value is not None else 0)


class Profiles:
    """Add profiles to entries. Absent values are kept, too."""

    def __init__(self, reads: ReplicaReads, *, clock: Clock) -> None:
        self._reads = reads
        self._monotonic = clock.monotonic
        self._kept: TTLCache[tuple[bytes, bytes], bytes | None] = TTLCache(
            KEPT_BYTES, KEPT_S, timer=clock.monotonic, getsizeof=_size
        )

    async def beside(self, key: bytes, entries: Iterable[Entry], until: float) -> tuple[list[Entry], bool]:
        """Return the entries with their profiles, and whether some could not be read by ``until`` (monotonic) or so."""
        rows = list(entries)
        known = {row.member: self._kept.get((key, row.member), _UNKNOWN) for row in rows}
        unknown = tuple(member for member, value in known.items() if value is _UNKNOWN)
        read = await self._read(key, unknown, until) if unknown else ()
        if read is not None:
            for member, value in zip(unknown, read, strict=True):
                known[member] = self._kept[key, member] = value
        return [row._replace(profile=_value(known[row.member])) for row in rows], read is None

    async def _read(self, key: bytes, members: tuple[bytes, ...], until: float) -> list[bytes | None] | None:
        within_s = min(WITHIN_S, until - self._monotonic())
        if within_s <= 0:
            return None
        try:
            values, _, _ = await self._reads.read(Plain(b"HMGET", key, members), lane="profiles", within_s=within_s)
        except WrongType:
            return [None] * len(members)
        except OriginError:
            return None
        return [_small(value) for value in values]


def _small(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) and len(value) <= PROFILE_LIMIT_BYTES else None


def _value(known: object) -> bytes | None:
    return known if isinstance(known, bytes) else None
