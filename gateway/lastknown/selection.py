"""Selection: which boards are kept, and under which names.

Knows: boards and periods by name.
Must not know: stores, snapshots' contents, when anything is saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from gateway.clock import Clock
from gateway.errors import RequestError
from gateway.lastknown.store import Name
from gateway.model import TOP_LIMIT, SnapshotKey, Target

Resolve = Callable[[str, str | None], Target]
"""Find the target of a leaderboard's name and a period's label (None: no periods); raises ``RequestError``."""


class Selection:
    """Say what is kept: tops only, boards of families only when asked for, periods until they are final.

    Clients' requests decide which boards of a family there are, so that their number has no bound; a period that is
    final belongs to the archive.
    """

    def __init__(self, resolve: Resolve, clock: Clock, *, families: bool) -> None:
        self._resolve = resolve
        self._clock = clock
        self.families = families

    def kept(self, key: SnapshotKey) -> Target | None:
        """Return the target of a key that is kept."""
        if (key.first, key.last) != (1, TOP_LIMIT):
            return None
        target = self.find(key.leaderboard, key.label)
        if target is None or self._is_final(target):
            return None
        return target if self.families or not target.board.is_family else None

    def former(self, target: Target) -> Target | None:
        """Return the period before a target's while that is not final, and so not archived yet."""
        if target.period is None or target.period.previous is None:
            return None
        former = self.find(target.leaderboard, target.period.previous)
        return None if former is None or self._is_final(former) else former

    def find(self, leaderboard: str, label: str | None) -> Target | None:
        """Return the target of this name and label, if they still mean one."""
        with contextlib.suppress(RequestError):
            return self._resolve(leaderboard, label)
        return None

    def _is_final(self, target: Target) -> bool:
        period = target.period
        return period is not None and self._clock.wall() >= period.end + target.board.settle_s


def top_of(target: Target) -> SnapshotKey:
    """Return the key of a target's top."""
    return SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT)


def name_of(key: SnapshotKey) -> Name:
    """Return the name that a top is kept under."""
    return Name("last", key.leaderboard, key.label or "")
