"""Keeper: saves boards that changed to a durable store behind the reads, and brings them back at start.

Knows: when a snapshot is due, what one turn of saving costs, how a failing store is told of.
Must not know: which kind of store it is, how boards are read or served.

Any number of instances save the same boards. Each looks at what is kept, and leaves alone what another one saved less
than an interval ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

from gateway import encode
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.errors import RequestError
from gateway.fingerprint import FINGERPRINT_BYTES, fingerprint
from gateway.lastknown.store import Kept, LastKnownStore, Name, StoreError
from gateway.model import TOP_LIMIT, SnapshotKey, Target

log = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE = 8
"""Saves under way at once, and boards looked at between two turns of the loop (20 µs each)."""
_SAME_SHARE = 0.75
"""What is kept counts as this interval's if it is younger than three quarters of one: instances tick out of step."""
_AGAIN_S = 300.0
"""How often a board that does not change is saved all the same, so that its age stays about true after a restart."""
_PRUNE_EVERY_S = 3600.0

RESTORE_WAIT_S = 1.0
"""How long a start waits for boards to come back: /livez has to answer within two seconds whatever a store does."""

Resolve = Callable[[str, str | None], Target]
"""Find the target of a leaderboard's name and a period's label (None: no periods); raises ``RequestError``."""

Adopt = Callable[[Target, Snapshot], object]


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
    as_of: float


class _Save(NamedTuple):
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
        self._resolve = resolve
        self._limits = limits
        self._saved: dict[SnapshotKey, _Saved] = {}
        self._task: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._adopted = 0
        self._failing = False
        saves = counters.counter("gateway_last_known_saves_total", "Saves of last known boards.", ("outcome",))
        self._count_saved, self._count_younger, self._count_failed = map(saves.cell, ("saved", "younger", "failed"))
        self._restores = counters.counter(
            "gateway_last_known_restores_total", "Last known boards looked for at start.", ("outcome",)
        )

    # --- saving -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to save every interval, from a random moment of the first one on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="last known boards")

    async def stop(self, limit_s: float) -> None:
        """Stop, and save what changed since, within the limit. Never raises."""
        tasks = [task for task in (self._task, self._restoring) if task is not None]
        self._task = self._restoring = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(limit_s):
                await self.save(last=True)
        except TimeoutError:
            log.warning("last known store: not every board was saved within the %g s there were at stop", limit_s)

    async def _run(self) -> None:
        await self._clock.sleep(self._limits.interval_s * self._random())
        next_prune = self._clock.monotonic() + _PRUNE_EVERY_S * self._random()
        while True:
            await self.save()
            if self._clock.monotonic() >= next_prune:
                next_prune = self._clock.monotonic() + _PRUNE_EVERY_S
                await self._prune()
            await self._clock.sleep(self._limits.interval_s)

    async def save(self, *, last: bool = False) -> None:
        """Save every board that is due; ``last``: also those that another instance saved within this interval.

        A store that fails for all boards of a batch is left alone until the next turn.
        """
        error: StoreError | None = None
        before = self._count_saved[0] + self._count_younger[0]
        self._saved = {
            snapshot.key: saved for snapshot in self._snapshots() if (saved := self._saved.get(snapshot.key))
        }
        for batch in _batches(list(self._snapshots()), _AT_ONCE):
            await self._clock.sleep(0)
            due = [save for snapshot in batch if (save := self._due(snapshot)) is not None]
            results = await asyncio.gather(*(self._save(save, last=last) for save in due))
            failures = [result for result in results if result is not None]
            error = error or next(iter(failures), None)
            if failures and len(failures) == len(due):
                break
        self._tell(error, worked=self._count_saved[0] + self._count_younger[0] > before)

    def _due(self, snapshot: Snapshot) -> _Save | None:
        """Return what is to be saved, if the snapshot has to be."""
        saved = self._saved.get(snapshot.key)
        if saved is not None and snapshot.as_of <= saved.as_of:
            return None
        target = self._wanted(snapshot.key)
        if target is None:
            return None
        digest = _digest(snapshot)
        again_s = min(_AGAIN_S, self._limits.keep_s / 4)
        if saved is not None and digest == saved.digest and snapshot.as_of < saved.as_of + again_s:
            return None
        return _Save(target, snapshot, digest)

    def _wanted(self, key: SnapshotKey) -> Target | None:
        """Return the target of a key that is saved: tops only, families only when asked for.

        A period that is final belongs to the archive.
        """
        if (key.first, key.last) != (1, TOP_LIMIT):
            return None
        try:
            target = self._resolve(key.leaderboard, key.label)
        except RequestError:
            return None
        if target.board.is_family and not self._limits.families:
            return None
        return None if self._is_final(target) else target

    async def _save(self, save: _Save, *, last: bool) -> StoreError | None:
        target, snapshot, digest = save
        since = snapshot.as_of
        if not last:
            since = min(since, self._clock.wall() - self._limits.interval_s * _SAME_SHARE)
        blob = fingerprint(target) + snapshot.dump()
        try:
            saved = await self._store.put(_name(snapshot.key), blob, snapshot.as_of, unless_since=since)
        except StoreError as error:
            self._count_failed[0] += 1
            return error
        if saved:
            self._count_saved[0] += 1
            self._saved[snapshot.key] = _Saved(digest, snapshot.as_of)
        else:
            self._count_younger[0] += 1
        return None

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

    async def _prune(self) -> None:
        """Forget boards that are too old to be served again: ended periods, and boards no longer configured."""
        oldest = self._clock.wall() - self._limits.keep_s
        try:
            for name, as_of in await self._store.entries("last"):
                if as_of < oldest:
                    await self._store.delete(name)
        except StoreError as error:
            log.info("last known store: old boards were not removed: %s", error)

    # --- restoring ----------------------------------------------------------------------------------------------------

    async def restore(self, targets: Iterable[Target], adopt: Adopt) -> int:
        """Bring back these boards, and families if they are kept; return how many were adopted so far. Never raises.

        ``adopt`` is called only with boards read within ``keep_s``. The first failure of the store ends it. A slow one
        holds up a start for ``RESTORE_WAIT_S`` at most; what it still has comes in behind.
        """
        self._restoring = asyncio.create_task(self._restore_all(list(targets), adopt), name="restore last known boards")
        done, _ = await asyncio.wait({self._restoring}, timeout=RESTORE_WAIT_S)
        if not done:
            log.warning("last known store is slow: boards are still being restored while the gateway starts")
        return self._adopted

    async def _restore_all(self, targets: Iterable[Target], adopt: Adopt) -> None:
        both = (either for target in targets for either in (target, self._former(target)) if either is not None)
        wanted = {_name(_top(target)): target for target in both}
        try:
            if self._limits.families:
                wanted |= await self._family_boards()
            for batch in _batches(list(wanted.items()), _AT_ONCE):
                await asyncio.gather(*(self._restore(*item, adopt) for item in batch))
        except StoreError as error:
            self._restores.add("failed")
            self._tell(error, worked=False)

    def _former(self, target: Target) -> Target | None:
        """Return the period before a target's, while that is not final: the archive does not have it yet."""
        if target.period is None or target.period.previous is None:
            return None
        with contextlib.suppress(RequestError):
            former = self._resolve(target.leaderboard, target.period.previous)
            if former.period is not None and not self._is_final(former):
                return former
        return None

    def _is_final(self, target: Target) -> bool:
        period = target.period
        return period is not None and self._clock.wall() >= period.end + target.board.settle_s

    async def _family_boards(self) -> dict[Name, Target]:
        found = {}
        for name, _ in await self._store.entries("last"):
            with contextlib.suppress(RequestError):
                target = self._resolve(name.leaderboard, name.label or None)
                if target.board.is_family:
                    found[name] = target
        return found

    async def _restore(self, name: Name, target: Target, adopt: Adopt) -> None:
        kept = await self._store.get(name)
        outcome = self._adopt(kept, target, adopt)
        self._restores.add(outcome)
        self._adopted += outcome == "restored"

    def _adopt(self, kept: Kept | None, target: Target, adopt: Adopt) -> str:
        if kept is None:
            return "none"
        if self._clock.wall() - kept.as_of > self._limits.keep_s:
            return "too_old"
        if not kept.blob.startswith(fingerprint(target)):
            return "reconfigured"
        key = _top(target)
        try:
            snapshot = encode.restore(
                kept.blob[FINGERPRINT_BYTES:], key, monotonic=self._clock.monotonic(), wall=self._clock.wall()
            )
        except ValueError as error:
            log.warning("last known store: what is kept of %s cannot be read: %s", target.leaderboard, error)
            return "unreadable"
        self._saved[key] = _Saved(_digest(snapshot), snapshot.as_of)
        adopt(target, snapshot)
        return "restored"


def _digest(snapshot: Snapshot) -> bytes:
    content = snapshot.content
    return encode.weak_etag(content.opening, content.rows, b"%d" % content.total)


def _top(target: Target) -> SnapshotKey:
    return SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT)


def _name(key: SnapshotKey) -> Name:
    return Name("last", key.leaderboard, key.label or "")


def _batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
