"""Restoring: brings boards back from a durable store when a process starts.

Knows: what is kept of which board, how old it may be, the fingerprint that it must bear.
Must not know: which kind of store it is, how boards are served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from gateway import encode
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.fingerprint import FINGERPRINT_BYTES, fingerprint
from gateway.lastknown.selection import Selection, name_of, top_of
from gateway.lastknown.store import Kept, LastKnownStore, Name
from gateway.model import Target

log = logging.getLogger(__name__)

Adopt = Callable[[Target, Snapshot], object]

_AT_ONCE = 8


class Restoring:
    """One process's boards coming back; ``adopted`` counts them."""

    def __init__(
        self, store: LastKnownStore, selection: Selection, *, clock: Clock, counters: Counters, keep_s: float
    ) -> None:
        self._store = store
        self._selection = selection
        self._clock = clock
        self._keep_s = keep_s
        self.adopted = 0
        self.outcomes = counters.counter(
            "gateway_last_known_restores_total", "Last known boards looked for at start.", ("outcome",)
        )

    async def run(self, targets: Iterable[Target], adopt: Adopt) -> None:
        """Look for these boards, the periods that ended just before theirs, and families if they are kept.

        Raise ``StoreError`` at the first failure of the store: at start nobody waits for one that does not answer.
        """
        wanted: dict[Name, Target] = {}
        for target in targets:
            for either in (target, self._selection.former(target)):
                if either is not None:
                    wanted[name_of(top_of(either))] = either
        if self._selection.families:
            wanted |= await self._families()
        items = list(wanted.items())
        for start in range(0, len(items), _AT_ONCE):
            await asyncio.gather(*(self._restore(*item, adopt) for item in items[start : start + _AT_ONCE]))

    async def _families(self) -> dict[Name, Target]:
        found = {}
        for name, _ in await self._store.entries("last"):
            target = self._selection.find(name.leaderboard, name.label or None)
            if target is not None and target.board.is_family:
                found[name] = target
        return found

    async def _restore(self, name: Name, target: Target, adopt: Adopt) -> None:
        kept = await self._store.get(name)
        outcome = "none" if kept is None else self._adopt(kept, target, adopt)
        self.outcomes.add(outcome)
        self.adopted += outcome == "restored"

    def _adopt(self, kept: Kept, target: Target, adopt: Adopt) -> str:
        if self._clock.wall() - kept.as_of > self._keep_s:
            return "too_old"
        if not kept.blob.startswith(fingerprint(target)):
            return "reconfigured"
        now, wall = self._clock.monotonic(), self._clock.wall()
        try:
            snapshot = encode.restore(kept.blob[FINGERPRINT_BYTES:], top_of(target), monotonic=now, wall=wall)
        except ValueError as error:
            log.warning("last known store: what is kept of %s cannot be read: %s", target.leaderboard, error)
            return "unreadable"
        adopt(target, snapshot)
        return "restored"
