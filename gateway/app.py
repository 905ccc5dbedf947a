"""Composition root: every part of one worker is built here, once, and handed to those who need it.

Knows: all parts and the settings they take.
Must not know: processes, listeners, the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
from collections.abc import Iterator, Sequence

from cdn.bound import Delays, staleness_bound_s
from gateway.archive import Archive, ArchiveLimits, ArchiveLoader
from gateway.boards import Boards
from gateway.clock import Clock, SystemClock
from gateway.counters import Counters, Samples
from gateway.encode import Snapshot
from gateway.errors import RequestError
from gateway.http.access import AccessLog
from gateway.http.app import HttpApp
from gateway.http.responses import Responses
from gateway.lastknown.keeper import Keeper, KeeperLimits
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import LastKnownStore
from gateway.layouts.scripts import scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.loader import Loader, OriginLoader
from gateway.model import TOP_LIMIT, Board, Order, SnapshotKey, Target, Ties
from gateway.readpath import Limits, Readiness, ReadPath
from gateway.replicas.build import build as build_reads
from gateway.replicas.commands import Script
from gateway.settings import RedisSettings, Settings
from gateway.sharedtier import SharedTier, SharedTierLoader
from gateway.starting import Starting
from gateway.store import Store
from gateway.warming import Warming

STOP_SAVE_S = 1.0
"""What saving last known boards may take of the time a worker has to stop."""
DRAIN_S = 0.3


def bound_s(board: Board, redis: RedisSettings) -> float:
    """Return a board's published staleness bound in seconds."""
    return staleness_bound_s(
        Delays(
            lag_s=0.0 if board.read_from == "primary" else redis.max_lag_s,
            ttl_s=board.ttl_s,
            grace_s=board.grace_s,
            load_s=redis.request_budget_s,
            edge_ttl_s=board.edge_ttl_s,
            client_ttl_s=board.client_ttl_s,
            stale_while_revalidate_s=board.stale_while_revalidate_s,
        )
    )


class Gateway:
    """One worker's gateway: ``asgi`` answers, ``start`` and ``stop`` bracket its life inside the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        counters: Counters,
        random: random_module.Random,
    ) -> None:
        redis = settings.redis
        self._settings, self._clock = settings, clock
        self.counters = counters
        self.boards = Boards(settings.boards)
        self.store = Store()
        self.reads = build_reads(
            redis, scripts=_scripts(settings.boards), clock=clock, counters=counters, random=random
        )
        origin = SortedSetOrigin(self.reads, clock=clock, request_budget_s=redis.request_budget_s)
        straight = OriginLoader(origin, clock)
        self._tier = self._shared(straight, random)
        self._kept = open_store(settings.last_known.store, clock=clock)
        self._keeper = None if self._kept is None else self._keep(self._kept, random)
        self._archive = None if self._kept is None else self._archived(self._kept, straight, random)
        loader: Loader = self._tier or straight
        self.readpath = ReadPath(
            origin=origin,
            # The archive is outermost: what it answers needs no origin, shared or not.
            loader=ArchiveLoader(loader, self._archive, clock) if self._archive else loader,
            store=self.store,
            clock=clock,
            random=random.random,
            limits=Limits(
                request_budget_s=redis.request_budget_s,
                max_lag_s=redis.max_lag_s,
                keep_s=settings.last_known.keep_s,
            ),
            bound_s=lambda board: bound_s(board, redis),
        )
        periodic = any(board.calendar is not None for board in settings.boards)
        self._warming = Warming(
            self.readpath, self.configured, clock, boundary=self.boards.boundary if periodic else None
        )
        self._was_ready = False
        self._starting = Starting(self.readpath, clock)
        self.asgi = HttpApp(
            boards=self.boards,
            reads=self._starting,
            readiness=self.readiness,
            responses=Responses(settings.boards, settings.cdn.dialects),
            clock=clock,
            counters=counters,
            random_bits=random.getrandbits,
            access=AccessLog(settings.log.access),
        )
        self._declare()

    @property
    def draining(self) -> bool:
        """Whether the gateway says that it is not ready, and ends keep-alive connections."""
        return self.asgi.draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self.asgi.draining = value

    async def start(self) -> None:
        """Connect, bring back last known boards, and load every configured board once if Redis answers.

        Never raises for Redis or a store that is away: what is missing is loaded behind. Requests may come meanwhile.
        """
        async with self._starting.under_way():
            await asyncio.gather(self._restore(), self.reads.start())
            if self._archive is not None:
                self._archive.start()
            self._warming.start()

    async def _restore(self) -> None:
        if self._keeper is not None:
            await self._keeper.restore(self.configured(), self._adopt_restored)
            self._keeper.start()
            self.readiness()

    async def stop(self) -> None:
        """Let flights end, save what changed, close every connection."""
        await self._warming.stop()
        await self.readpath.flights.drain(DRAIN_S)
        if self._archive is not None:
            await self._archive.stop()
        if self._keeper is not None:
            await self._keeper.stop(STOP_SAVE_S)
        if self._kept is not None:
            await self._kept.close()
        if self._tier is not None:
            await self._tier.stop()
        await self.reads.stop()

    def readiness(self) -> Readiness:
        """Say what could be answered now. Ready once is ready for good.

        At midnight every daily board begins anew and unknown. If that came in an outage, or were asked about in the
        moment before the new boards are there, a balancer would take all instances out at once.
        """
        found = self.readpath.readiness(self.configured(), redis_up=self.reads.up())
        self._was_ready = self._was_ready or found.ready
        return found._replace(ready=self._was_ready)

    def configured(self) -> Iterator[Target]:
        """Go through the boards that are not families, each in its running period."""
        wall = self._clock.wall()
        for board in self.boards.catalogue:
            if not board.is_family:
                with contextlib.suppress(RequestError):
                    yield self.boards.resolve(board.name, None, wall)

    def _shared(self, loader: Loader, random: random_module.Random) -> SharedTierLoader | None:
        asked = self._settings.shared_tier
        if asked is None:
            return None
        tier = SharedTier(
            asked.url,
            prefix=asked.prefix,
            ttl_s=asked.ttl_ms / 1000,
            timeout_s=asked.timeout_ms / 1000,
            clock=self._clock,
            counters=self.counters,
            random=random.random,
        )
        return SharedTierLoader(loader, tier, clock=self._clock, budget_s=self._settings.redis.request_budget_s)

    def _archived(self, kept: LastKnownStore, loader: Loader, random: random_module.Random) -> Archive:
        return Archive(
            kept,
            loader,
            boards=self.boards,
            snapshots=self._snapshots,
            clock=self._clock,
            counters=self.counters,
            random=random.random,
            limits=ArchiveLimits(families=self._settings.last_known.families, max_lag_s=self._settings.redis.max_lag_s),
        )

    def _keep(self, kept: LastKnownStore, random: random_module.Random) -> Keeper:
        limits = self._settings.last_known
        return Keeper(
            kept,
            clock=self._clock,
            counters=self.counters,
            random=random.random,
            snapshots=self._snapshots,
            resolve=lambda name, label: self.boards.resolve(name, label, self._clock.wall()),
            limits=KeeperLimits(interval_s=limits.interval_s, keep_s=limits.keep_s, families=limits.families),
        )

    def _snapshots(self) -> Iterator[Snapshot]:
        return (slot.snapshot for slot in self.store.slots() if slot.snapshot is not None)

    def _adopt_restored(self, target: Target, snapshot: Snapshot) -> None:
        self.readpath.adopt(target, snapshot, restored=True)

    def _declare(self) -> None:
        flights, store = self.readpath.flights, self.store
        gauge = self.counters.gauge
        gauge("gateway_flights", "Loads under way.", lambda: {(): len(flights)})
        gauge("gateway_flight_waiters", "Callers that wait for a load.", lambda: {(): flights.waiters})
        gauge("gateway_snapshots", "Boards, periods and ranges in memory.", lambda: {(): len(store)})
        gauge("gateway_snapshots_bytes", "What the snapshots take.", lambda: {(): store.size_bytes})
        gauge("gateway_snapshots_evicted", "Snapshots dropped for room so far.", lambda: {(): store.evicted})
        gauge(
            "gateway_snapshot_age_seconds",
            "Age of each configured board's snapshot; the oldest among the workers.",
            self._ages,
            labels=["leaderboard"],
            over_workers="max",
        )

    def _ages(self) -> Samples:
        now = self._clock.monotonic()
        ages: dict[tuple[str, ...], float] = {}
        for target in self.configured():
            slot = self.store.get(SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT))
            if slot is not None and slot.snapshot is not None:
                ages[target.leaderboard,] = now - slot.snapshot.began + slot.snapshot.behind_s
        return ages


def _scripts(boards: Sequence[Board]) -> tuple[Script, ...]:
    """Return what the connections of these boards load; at least one, so that a login without rights shows at once."""
    kinds: dict[tuple[Order, Ties], None] = {(board.order, board.ties): None for board in boards}
    return scripts_of(*kinds)


def build(settings: Settings, *, counters: Counters | None = None, clock: Clock | None = None) -> Gateway:
    """Build one worker's gateway. Raises OSError where a file that the settings name cannot be used."""
    return Gateway(
        settings,
        clock=clock or SystemClock(),
        counters=counters or Counters(),
        random=random_module.Random(),
    )
