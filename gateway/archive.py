"""Archive: finished periods, kept complete to their top 100 and total, and served once their keys have expired.

Knows: when a period is final, which were archived, the loader it wraps.
Must not know: HTTP, Redis, which kind of store keeps it.

A period is final some time after its end: until then late scores may come in. It is then read from the origin once
and put on the archive's shelf unless another instance has; only ``rebuild`` replaces what lies there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cachetools import TTLCache

from gateway import encode
from gateway.boards import Boards
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.errors import GatewayError, OriginError, OriginUnavailable, RequestError, WrongType
from gateway.lastknown.store import NEVER, LastKnownStore, Name, StoreError
from gateway.loader import Loader
from gateway.model import TOP_LIMIT, Board, SnapshotKey, Target
from gateway.periods import Calendar, Period

log = logging.getLogger(__name__)

_FIRST_S, _EVERY_S = 2.0, 60.0
_BACK, _BACK_FAMILY = 8, 1
"""How many finished periods are looked after: an instance that was away for a week still archives each day. Of a
family's boards, which may be many thousands, only the last."""
_PROFILES_WAIT_S = 3600.0
"""How long archiving waits for profiles that cannot be read; after that the rows count more than the names."""
_REMEMBERED = 256
_REMEMBERED_S = 60.0
"""How long an archived board is kept in memory, so that one just rebuilt shows within a minute everywhere."""
_ORIGIN_AWAY_S = 1.0
_PATIENCE_S = 0.15
"""Most loads take 2 ms, and a caller's whole budget is half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Whether boards of families are archived too, and how far behind a node may be that counts as in step (seconds).

    So much later than final a period is read for good.
    """

    families: bool = False
    max_lag_s: float = 0.0


class Archive:
    """Finished periods on the archive's shelf, and the task that puts them there.

    ``loader`` reads from the origin itself. ``snapshots`` gives all that this process holds: with families, their
    boards among them are archived too. ``random`` gives numbers in [0, 1).
    """

    def __init__(
        self,
        store: LastKnownStore,
        loader: Loader,
        *,
        boards: Boards,
        snapshots: Callable[[], Iterable[Snapshot]],
        clock: Clock,
        counters: Counters,
        random: Callable[[], float],
        limits: ArchiveLimits,
    ) -> None:
        self._store = store
        self._loader = loader
        self._boards = boards
        self._snapshots = snapshots
        self._clock = clock
        self._random = random
        self._limits = limits
        self._done: set[Name] = set()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._read: TTLCache[Name, Snapshot | None] = TTLCache(_REMEMBERED, _REMEMBERED_S, timer=clock.monotonic)
        self._periods = counters.counter(
            "gateway_archived_periods_total", "Finished periods that were to be archived.", ("outcome",)
        )

    def is_final(self, target: Target) -> bool:
        """Tell whether a target's period is over for good."""
        return self._clock.wall() >= target.final_at

    async def find(self, target: Target) -> Snapshot | None:
        """Return an archived period as a snapshot read just now, with its own ``as_of``; None if there is none.

        Raise ``StoreError`` if the store cannot say.
        """
        name = name_of(target)
        if name in self._read:
            found = self._read[name]
        else:
            found = self._read[name] = await self._fetch(name, target)
        if found is None:
            return None
        # Its age does not count from its reading in an earlier year: that it is final was found out just now.
        return Snapshot(found.key, found.content, began=self._clock.monotonic(), as_of=found.as_of)

    async def _fetch(self, name: Name, target: Target) -> Snapshot | None:
        kept = await self._store.get(name)
        if kept is None:
            return None
        try:
            return encode.restore(kept.blob, _top(target), monotonic=self._clock.monotonic(), wall=self._clock.wall())
        except ValueError as error:
            raise StoreError(f"the archive of {name.leaderboard} {name.label} cannot be read: {error}") from error

    async def rebuild(self, target: Target) -> Snapshot:
        """Read a finished period again and replace what is archived of it; return what was read.

        Raise as the loader does, ``PeriodNotFound`` not being among it: an absent key is an empty snapshot, which is
        never archived. Raise ``StoreError`` if the store does not take it.
        """
        snapshot = await self._loader.load(target, _top(target))
        if snapshot.content.total:
            # Not older than what lies there even if this clock is behind the one that read that.
            await self._store.put(name_of(target), snapshot.dump(), snapshot.as_of, unless_since=float("inf"))
            self._read.pop(name_of(target), None)
        return snapshot

    # --- the task -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to archive what is final, a moment after the start and then about once a minute."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="archive of finished periods")

    async def stop(self) -> None:
        """Stop at once; what was not archived yet is at the next start, or by another instance. Never raises."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        await self._clock.sleep(_FIRST_S * self._random())
        while True:
            try:
                await self.archive_final()
            except Exception:  # one period that breaks archiving must not end it for all others, unnoticed
                log.exception("archiving finished periods failed in an unforeseen way")
            # Instances that turn in step would all look at the same period at once.
            await self._clock.sleep(_EVERY_S * (0.5 + self._random() / 2))

    async def archive_final(self) -> None:
        """Archive every final period that is not; never raises."""
        error: Exception | None = None
        seen: set[Name] = set()
        for target in self._final():
            name = name_of(target)
            seen.add(name)
            if name not in self._done:
                try:
                    await self._archive(name, target)
                except (GatewayError, StoreError) as failure:
                    self._periods.add("failed")
                    error = error or failure
        self._done &= seen
        self._tell(error)

    def _final(self) -> Iterator[Target]:
        wall = self._clock.wall()
        for leaderboard, board in self._dated().items():
            back = _BACK_FAMILY if board.is_family else _BACK
            for period in _ended(board.calendar, wall - board.settle_s - self._limits.max_lag_s, back):
                with contextlib.suppress(RequestError):
                    yield self._boards.resolve(leaderboard, period.label, wall)

    def _dated(self) -> dict[str, Board]:
        dated = {board.name: board for board in self._boards.catalogue if board.calendar and not board.is_family}
        if self._limits.families:
            for key in [snapshot.key for snapshot in self._snapshots() if snapshot.key.label is not None]:
                with contextlib.suppress(RequestError):
                    board = self._boards.resolve(key.leaderboard, key.label, self._clock.wall()).board
                    dated.setdefault(key.leaderboard, board)
        return dated

    async def _archive(self, name: Name, target: Target) -> None:
        if await self._store.get(name) is not None:
            self._done.add(name)
            return
        try:
            snapshot = await self._loader.load(target, _top(target))
        except WrongType:  # the read path tells of it; asking again would not help
            self._periods.add("wrong_type")
            self._done.add(name)
            return
        if snapshot.stale or (snapshot.short_lived and self._may_wait(target)):
            return  # not sure to be all there was; the next turn asks again
        if snapshot.content.total == 0:
            self._periods.add("empty")
        elif await self._store.put(name, snapshot.dump(), snapshot.as_of, unless_since=NEVER):
            self._periods.add("archived")
        self._done.add(name)

    def _may_wait(self, target: Target) -> bool:
        return self._clock.wall() < target.final_at + _PROFILES_WAIT_S

    def _tell(self, error: Exception | None) -> None:
        if error is not None and not self._failing:
            log.warning("a finished period could not be archived, and is tried again: %s", error)
        elif error is None and self._failing:
            log.warning("finished periods are archived again")
        self._failing = error is not None


class ArchiveLoader:
    """A loader that answers for final periods from the archive where their key is gone, or no node answers."""

    def __init__(self, inner: Loader, archive: Archive, clock: Clock) -> None:
        self._inner = inner
        self._archive = archive
        self._clock = clock
        self._away_until = 0.0

    async def load(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Load from the origin; with its key absent, from the archive. Raise as the inner loader does.

        A store that cannot say whether there is an archive is ``OriginUnavailable``: 404 would be a guess.
        """
        if not self._archive.is_final(target) or key != _top(target):
            return await self._inner.load(target, key)
        if self._clock.monotonic() < self._away_until:
            archived = await self._find(target)
            if archived is not None:
                return archived
        try:
            snapshot = await self._patiently(target, key)
        except WrongType:
            raise
        except OriginError:
            archived = await self._instead(target)
            if archived is None:
                raise
            return archived
        if snapshot.content.total == 0:
            return await self._find(target) or snapshot
        return snapshot

    async def _patiently(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Load from the origin, but do not wait for it to use up the caller's time where there is an archive."""
        task = asyncio.create_task(self._inner.load(target, key))
        try:
            done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
            if not done:
                with contextlib.suppress(OriginUnavailable):
                    archived = await self._instead(target)
                    if archived is not None:
                        return archived
            return await task
        finally:
            task.cancel()

    async def _instead(self, target: Target) -> Snapshot | None:
        """Return the archive for want of the origin; for a second nobody waits again to learn that none answers."""
        self._away_until = self._clock.monotonic() + _ORIGIN_AWAY_S
        return await self._find(target)

    async def _find(self, target: Target) -> Snapshot | None:
        try:
            return await self._archive.find(target)
        except StoreError as error:
            raise OriginUnavailable from error


def name_of(target: Target) -> Name:
    """Return the name that a period of a board is archived under."""
    return Name("archive", target.leaderboard, target.label or "")


def _top(target: Target) -> SnapshotKey:
    return SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT)


def _ended(calendar: Calendar | None, wall: float, most: int) -> Iterator[Period]:
    """Go back through the periods that had ended at this instant."""
    period = calendar.before(wall) if calendar is not None else None
    for _ in range(most):
        if calendar is None or period is None:
            return
        yield period
        period = calendar.named(period.previous) if period.previous is not None else None
