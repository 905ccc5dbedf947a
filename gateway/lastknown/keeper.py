"""Keeper: saves boards that changed to a durable store behind the reads, and brings them back at start.

Knows: when a snapshot is due, what one turn of saving costs, how a failing store is told of.
Must not know: which kind of store it is, how boards are read or served.

Any number of instances save the same boards. Each looks at what is kept, and leaves alone what another one saved less
than an interval ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gateway import encode
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.fingerprint import fingerprint
from gateway.lastknown.restoring import Adopt, Restoring
from gateway.lastknown.selection import Resolve, Selection, name_of
from gateway.lastknown.store import LastKnownStore, StoreError
from gateway.model import SnapshotKey, Target

log = logging.getLogger(__name__)

RESTORE_WAIT_S = 1.0
"""How long a start waits for boards to come back: /livez has to answer within two seconds whatever a store does."""
_AT_ONCE = 8
"""Saves under way at once, and boards looked at between two turns of the loop (20 µs each)."""
_SAME_SHARE = 0.75
"""What is kept counts as this interval's if it is younger than three quarters of one: instances tick out of step."""
_AGAIN_S = 300.0
"""How often a board that does not change is saved all the same, so that its age stays about true after a restart."""
_PRUNE_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperLimits:
    """Seconds between two saves of a board, and how old a kept one may be.

    ``families``: whether boards of families, which clients' requests bring about, are saved too.
    """

    interval_s: float = 10.0
    keep_s: float = 86_400.0
    families: bool = False


class _Saved(NamedTuple):
    digest: bytes
    began: float
    """Monotonic: by the wall clock, which may be set back, a board just read could look as old as the one saved."""


class _Due(NamedTuple):
    target: Target
    snapshot: Snapshot
    digest: bytes


class Keeper:
    """Save and restore. ``snapshots`` gives all that this process holds, ``random`` numbers in [0, 1)."""

    def __init__(
        self,
        store: LastKnownStore,
        *,
        clock: Clock,
        counters: Counters,
        random: Callable[[], float],
        snapshots: Callable[[], Iterable[Snapshot]],
        resolve: Resolve,
        limits: KeeperLimits,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._snapshots = snapshots
        self._limits = limits
        self._selection = Selection(resolve, clock, families=limits.families)
        self._restoring = Restoring(store, self._selection, clock=clock, counters=counters, keep_s=limits.keep_s)
        self._saved: dict[SnapshotKey, _Saved] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failing = False
        saves = counters.counter("gateway_last_known_saves_total", "Saves of last known boards.", ("outcome",))
        self._count_saved, self._count_younger, self._count_failed = map(saves.cell, ("saved", "younger", "failed"))

    async def restore(self, targets: Iterable[Target], adopt: Adopt) -> int:
        """Bring back these boards, and families if they are kept; return how many were adopted so far. Never raises.

        ``adopt`` is called only with boards read within ``keep_s``. The first failure of the store ends it. A slow one
        holds up a start for ``RESTORE_WAIT_S`` at most; what it still has comes in behind.
        """
        task = asyncio.create_task(self._restore(list(targets), adopt), name="restore last known boards")
        self._tasks["restore"] = task
        done, _ = await asyncio.wait({task}, timeout=RESTORE_WAIT_S)
        if not done:
            log.warning("last known store is slow: boards are still being restored while the gateway starts")
        return self._restoring.adopted

    def start(self) -> None:
        """Begin to save every interval, from a random moment of the first one on."""
        if "save" not in self._tasks:
            self._tasks["save"] = asyncio.create_task(self._run(), name="last known boards")

    async def stop(self, limit_s: float) -> None:
        """Stop, and save what changed since, within the limit. Never raises."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(limit_s):
                await self.save(last=True)
        except TimeoutError:
            log.warning("last known store: not every board was saved within the %g s there were at stop", limit_s)

    async def save(self, *, last: bool = False) -> None:
        """Save every board that is due; ``last``: also those that another instance saved within this interval.

        A store that fails for all boards of a batch is left alone until the next turn.
        """
        snapshots = list(self._snapshots())
        self._saved = {one.key: saved for one in snapshots if (saved := self._saved.get(one.key)) is not None}
        error: StoreError | None = None
        worked = False
        for start in range(0, len(snapshots), _AT_ONCE):
            await self._clock.sleep(0)
            batch = snapshots[start : start + _AT_ONCE]
            dues = [due for snapshot in batch if (due := self._due(snapshot)) is not None]
            failures = await asyncio.gather(*(self._save(due, last=last) for due in dues))
            error = error or next(filter(None, failures), None)
            worked = worked or None in failures
            if dues and None not in failures:
                break
        self._tell(error, worked=worked)

    async def _run(self) -> None:
        await self._clock.sleep(self._limits.interval_s * self._random())
        next_prune = self._clock.monotonic() + _PRUNE_EVERY_S * self._random()
        while True:
            try:
                await self.save()
                if self._clock.monotonic() >= next_prune:
                    next_prune = self._clock.monotonic() + _PRUNE_EVERY_S
                    await self._prune()
            except Exception:  # a board that breaks saving must not end it for all others, unnoticed until a restart
                log.exception("saving last known boards failed in an unforeseen way")
            await self._clock.sleep(self._limits.interval_s)

    def _due(self, snapshot: Snapshot) -> _Due | None:
        """Return what is to be saved, if the snapshot has to be."""
        saved = self._saved.get(snapshot.key)
        if saved is not None and snapshot.began <= saved.began:
            return None
        target = self._selection.kept(snapshot.key)
        if target is None:
            return None
        digest = _digest(snapshot)
        again_s = min(_AGAIN_S, self._limits.keep_s / 4)
        if (
            saved is not None
            and snapshot.began < saved.began + again_s
            and (digest == saved.digest or snapshot.short_lived)
        ):
            return None  # unchanged, or rows without the names that were saved a moment ago
        return _Due(target, snapshot, digest)

    async def _save(self, due: _Due, *, last: bool) -> StoreError | None:
        target, snapshot, digest = due
        since = snapshot.as_of
        if not last:
            since = min(since, self._clock.wall() - self._limits.interval_s * _SAME_SHARE)
        blob = fingerprint(target) + snapshot.dump()
        try:
            saved = await self._store.put(name_of(snapshot.key), blob, snapshot.as_of, unless_since=since)
        except StoreError as error:
            self._count_failed[0] += 1
            return error
        if saved:
            self._count_saved[0] += 1
            self._saved[snapshot.key] = _Saved(digest, snapshot.began)
        else:
            self._count_younger[0] += 1
        return None

    async def _restore(self, targets: Iterable[Target], adopt: Adopt) -> None:
        def note(target: Target, snapshot: Snapshot) -> None:
            self._saved[snapshot.key] = _Saved(_digest(snapshot), snapshot.began)
            adopt(target, snapshot)

        try:
            await self._restoring.run(targets, note)
        except StoreError as error:
            self._restoring.outcomes.add("failed")
            self._tell(error, worked=False)

    async def _prune(self) -> None:
        """Forget boards that are too old to be served again: ended periods, and boards no longer configured."""
        oldest = self._clock.wall() - self._limits.keep_s
        try:
            for name, as_of in await self._store.entries("last"):
                if as_of < oldest:
                    await self._store.delete(name)
        except StoreError as error:
            log.info("last known store: old boards were not removed: %s", error)

    def _tell(self, error: StoreError | None, *, worked: bool) -> None:
        """Log once when the store begins to fail, and once when it works again."""
        if error is not None and not self._failing:
            self._failing = True
            log.warning(
                "last known store fails: %s; reads are not affected, a restart during an outage would be", error
            )
        elif error is None and worked and self._failing:
            self._failing = False
            log.warning("last known store works again")


def _digest(snapshot: Snapshot) -> bytes:
    content = snapshot.content
    return encode.weak_etag(content.opening, content.rows, b"%d" % content.total)
