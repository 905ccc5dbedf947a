"""ReadPath: the one sequence every read goes through.

Knows: store, freshness, flights, origin, encode, and in which order they are asked.
Must not know: HTTP, Redis, headers.

A cached read: look, decide, act. There is no await between the look-up and the join, so that two callers never both
find "no flight" for one key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from gateway import encode, excerpt
from gateway.clock import Clock
from gateway.coalesce.singleflight import Flight, SingleFlight
from gateway.encode import Rendering, Snapshot
from gateway.errors import (
    GatewayError,
    MemberNotFound,
    OriginError,
    OriginTimeout,
    OriginUnavailable,
    Overloaded,
    PeriodNotFound,
    WrongType,
)
from gateway.freshness import Action, decide, hold_s, life_of, loading
from gateway.loader import Loader, behind_s
from gateway.model import TOP_LIMIT, Board, Origin, Outcome, Query, SnapshotKey, Stamp, Standings, Target, Window
from gateway.store import Slot, Store, carry_over

log = logging.getLogger(__name__)

_GIVEN_UP = 3
"""Loads of a board that fail one after the other while those of others succeed: it is the board's own fault."""

_BACKSTOP_S = 10.0
"""A load's own deadline, unless the budget is longer. The origin keeps the budget itself, and does not count time in
which this process was held up; this only ends what would hang for ever."""


class Reply(NamedTuple):
    """How one read ended, and what it brought.

    ``body`` is a ``Rendering`` for top, ranks and board, plain bytes for the uncached kinds. ``as_of`` is wall seconds,
    ``age_s`` the seconds since then on the monotonic clock. The very same reply may be given again until the monotonic
    instant ``fresh_until`` (0: do not). ``stored`` tells whether a miss went into the store. ``final``: read when the
    period's scores could no longer change. ``short_lived``: rows whose profiles could not be read.
    """

    outcome: Outcome
    body: Rendering | bytes
    as_of: float
    stale: bool
    fresh_until: float = 0.0
    stored: bool = True
    age_s: float = 0.0
    final: bool = False
    short_lived: bool = False


class Readiness(NamedTuple):
    """What the instance could answer now: configured boards by what is known of them."""

    ready: bool
    redis_up: bool
    fresh: int
    last_known: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the read path: seconds, and how many callers may wait for one cold board.

    ``max_lag_s``: how far behind a node may be that counts as in step.
    """

    request_budget_s: float = 0.5
    max_lag_s: float = 2.0
    keep_s: float = 86_400.0
    max_waiters: int = 20_000


class ReadPath:
    """Answer queries from snapshots, shared loads and uncached reads.

    ``bound_s`` gives a board's published staleness bound, ``up`` whether any Redis node answers, ``random`` numbers in
    [0, 1) for the jitter of holds.
    """

    def __init__(
        self,
        *,
        origin: Origin,
        loader: Loader,
        store: Store,
        clock: Clock,
        random: Callable[[], float],
        limits: Limits,
        bound_s: Callable[[Board], float],
    ) -> None:
        self._origin = origin
        self._loader = loader
        self._clock = clock
        self._random = random
        self._limits = limits
        self._bound_s = bound_s
        self.store = store
        self.flights: SingleFlight[SnapshotKey, Snapshot] = SingleFlight(max(_BACKSTOP_S, 2 * limits.request_budget_s))

    async def read(self, query: Query) -> Reply:
        """Answer one query; raise an error of ``gateway.errors`` when nothing servable is known.

        Cancelling the caller disturbs no other caller and no load. The wait is bounded by the load's deadline.
        """
        if query.kind in ("top", "ranks", "board"):
            return await self._cached(query)
        try:
            return await self._uncached(query)
        except WrongType:
            raise
        except OriginError as error:
            return self._from_last_known(query, error)

    # --- cached kinds -------------------------------------------------------------------------------------------------

    async def _cached(self, query: Query) -> Reply:
        now = self._clock.monotonic()
        key = query.snapshot_key
        slot = self.store.get(key) or Slot()
        action = self._decide(query.target.board, slot, key, now)
        if action is Action.SERVE or action is Action.SERVE_AND_REFRESH:
            if action is Action.SERVE_AND_REFRESH:
                self._fly(query.target, key)
            return self._reply(query, slot, "hit", now)
        if action is Action.SERVE_STALE or action is Action.SERVE_STALE_AND_LOAD:
            if action is Action.SERVE_STALE_AND_LOAD:
                self._fly(query.target, key)
            return self._stale(query, slot, slot.error, now)
        if action is Action.FAIL:
            raise _again(slot.error)
        flight, joined = self._fly(query.target, key)
        return await self._wait(query, flight, "joined" if joined else "miss", slot)

    def _decide(self, board: Board, slot: Slot, key: SnapshotKey, now: float) -> Action:
        snapshot = slot.snapshot
        age_s = None if snapshot is None else now - snapshot.began
        if age_s is not None and age_s > self._limits.keep_s:
            age_s = None
        flying = self.flights.get(key) is not None
        state = loading(flying=flying, failures=slot.failures, held=now < slot.held_until)
        life = life_of(board, short_lived=snapshot is not None and snapshot.short_lived)
        return decide(life.age(age_s), state, flying=flying)

    def _fly(self, target: Target, key: SnapshotKey) -> tuple[Flight[Snapshot], bool]:
        return self.flights.join(key, lambda: self._load(target, key))

    async def _wait(self, query: Query, flight: Flight[Snapshot], outcome: Outcome, slot: Slot) -> Reply:
        """Wait for a flight as its owner or a joiner; a joiner does not check freshness again."""
        if flight.waiters >= self._limits.max_waiters:
            return self._stale(query, slot, Overloaded(), self._clock.monotonic())
        try:
            known = slot.snapshot
            may_be_stale = known is not None and self._clock.monotonic() - known.began <= self._limits.keep_s
            snapshot = await self._landed(flight, may_be_stale=may_be_stale)
        except Exception as error:  # noqa: BLE001 - every failed load ends in the last known snapshot or in an error
            return self._stale(query, self.store.get(query.snapshot_key) or slot, error, self._clock.monotonic())
        slot = self.store.get(query.snapshot_key) or Slot(snapshot)
        return self._render(query, slot, snapshot, outcome, self._clock.monotonic())

    async def _landed(self, flight: Flight[Snapshot], *, may_be_stale: bool) -> Snapshot:
        """Return what the flight brings; ``TimeoutError`` past the budget where something older can be served.

        Nobody else has a limit: the load ends inside its deadline. With 10,000 callers waiting, the loop takes longer
        to wake them all than a read does, and a limit would turn away callers whose answer is there.
        """
        try:
            return await flight.wait(self._limits.request_budget_s if may_be_stale else None)
        except TimeoutError:
            if not flight.done:
                raise
            return await flight.wait()  # it landed while the process was held up, or the time-out was its own

    def _reply(self, query: Query, slot: Slot, outcome: Outcome, now: float) -> Reply:
        assert slot.snapshot is not None  # noqa: S101 - the table serves only what is stored
        return self._render(query, slot, slot.snapshot, outcome, now)

    def _stale(self, query: Query, slot: Slot, error: Exception | None, now: float) -> Reply:
        """Serve the last known snapshot, marked; raise the load's error where there is none, or none may be served."""
        snapshot = slot.snapshot
        if snapshot is None or isinstance(error, WrongType) or now - snapshot.began > self._limits.keep_s:
            raise _again(error) from error
        if not isinstance(error, GatewayError | TimeoutError):
            log.error("a load failed in an unforeseen way; serving the last known snapshot", exc_info=error)
        return self._render(query, slot, snapshot, "stale", now)

    def _render(self, query: Query, slot: Slot, snapshot: Snapshot, outcome: Outcome, now: float) -> Reply:
        target = query.target
        stale = snapshot.stale or outcome == "stale"
        if snapshot.content.total == 0 and _has_ended(target, self._clock):
            # Neither its key nor its archive exists, as far as is known now.
            raise OriginUnavailable if stale else PeriodNotFound
        if query.kind == "board":
            body = encode.board_rendering(target, snapshot, stale=stale, bound_s=self._bound_s(target.board))
        else:
            body = snapshot.content.rendering(query.first, query.last, stale=stale)
        age_s = now - snapshot.began + snapshot.behind_s
        return Reply(
            "stale" if stale else outcome,
            body,
            snapshot.as_of,
            stale,
            self._fresh_until(target.board, slot, snapshot, now, age_s if stale else None),
            target.board.ttl_s > 0,
            age_s,
            snapshot.as_of - self._limits.max_lag_s >= target.final_at,
            snapshot.short_lived,
        )

    def _fresh_until(
        self, board: Board, slot: Slot, snapshot: Snapshot, now: float, stale_age_s: float | None
    ) -> float:
        """Return until when this very reply may be given again without asking."""
        life = life_of(board, short_lived=snapshot.short_lived)
        until = snapshot.began + life.ttl_s
        if until < now:
            until = slot.held_until if slot.failures else 0.0
        if stale_age_s is None:
            until = min(until, snapshot.began + life.ttl_s + life.grace_s)
        else:
            # A stale answer tells its age in whole seconds: it may be repeated until that number changes.
            until = min(until, now + floor(stale_age_s) + 1 - stale_age_s)
        return until if until > now else 0.0

    # --- loads --------------------------------------------------------------------------------------------------------

    async def _load(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Load inside a flight: one attempt, and what came of it noted for everyone who asks later."""
        try:
            snapshot = await self._loader.load(target, key)
        except BaseException as error:
            self._note_failure(target, key, error)
            raise
        return self.adopt(target, snapshot)

    def _note_failure(self, target: Target, key: SnapshotKey, error: BaseException) -> None:
        slot = self.store.get(key) or Slot()
        slot.failures += 1
        slot.error = error if isinstance(error, GatewayError) else OriginUnavailable()
        slot.held_until = self._clock.monotonic() + hold_s(slot.failures, self._random())
        self.store.put(key, slot, pinned=self._is_pinned(target, key))

    def adopt(self, target: Target, snapshot: Snapshot, *, restored: bool = False) -> Snapshot:
        """Store a snapshot and return what is stored: an unchanged board keeps its content, and nothing goes back.

        ``restored``: it comes from a former process; what is already stored is then left alone.
        """
        key = snapshot.key
        slot = self.store.get(key) or Slot()
        if slot.snapshot is not None:
            if restored:
                return slot.snapshot
            carry_over(slot.snapshot, snapshot)
        slot.snapshot = snapshot
        slot.failures, slot.error, slot.held_until = 0, None, 0.0
        slot.restored = restored
        self.store.put(key, slot, pinned=self._is_pinned(target, key))
        return snapshot

    def _is_pinned(self, target: Target, key: SnapshotKey) -> bool:
        if target.board.is_family or key.last != TOP_LIMIT:
            return False
        period = target.period
        return period is None or period.start <= self._clock.wall() < period.end

    # --- uncached kinds -----------------------------------------------------------------------------------------------

    async def _uncached(self, query: Query) -> Reply:
        target = query.target
        if query.kind == "neighbors":
            window = await self._origin.neighbors(target, query.members[0], query.above, query.below)
            if not window.entries:
                return await self._absent(query, window)
            return self._fresh(window.stamp, encode.window_body(target, window, stale=window.stamp.stale))
        if query.kind == "member":
            standings = await self._origin.member(target, query.members[0])
            if not standings.entries:
                return await self._absent(query, standings)
            return self._fresh(standings.stamp, encode.member_body(target, standings, stale=standings.stamp.stale))
        standings = await self._origin.members(target, query.members)
        if not standings.total and _has_ended(target, self._clock):
            return await self._absent(query, standings)
        return self._fresh(standings.stamp, encode.members_body(target, standings, stale=standings.stamp.stale))

    def _fresh(self, stamp: Stamp, body: bytes) -> Reply:
        age_s = self._stale_age_s(stamp)
        if age_s is None:
            return Reply("miss", body, stamp.as_of, stale=False, stored=False)
        return Reply("stale", body, stamp.as_of, stale=True, stored=False, age_s=age_s)

    def _stale_age_s(self, stamp: Stamp) -> float | None:
        """Return how old what a node out of step said is; None where the node was in step."""
        if not stamp.stale:
            return None
        return self._clock.monotonic() - stamp.began + behind_s(stamp, self._clock)

    async def _absent(self, query: Query, found: Window | Standings) -> Reply:
        """Answer for a member that the origin did not find: from the archive if the period's key is gone, else 404."""
        target = query.target
        if found.total or not _has_ended(target, self._clock):
            raise MemberNotFound(as_of=found.stamp.as_of, stale_age_s=self._stale_age_s(found.stamp))
        await self._cached(Query("top", target))  # the loader knows the archive; raises PeriodNotFound without one
        slot = self._top_slot(target)
        body = None if slot is None or slot.snapshot is None else excerpt.body_from(query, slot.snapshot, stale=False)
        if body is None or slot is None or slot.snapshot is None:
            raise PeriodNotFound
        return Reply("miss", body, slot.snapshot.as_of, stale=False, stored=False)

    def _from_last_known(self, query: Query, error: OriginError) -> Reply:
        """Answer a member read during an outage, marked, if all of it lies inside the last known top."""
        if query.target.board.read_from == "primary":
            raise error
        slot = self.store.get(query.snapshot_key)
        now = self._clock.monotonic()
        if slot is None or slot.snapshot is None or now - slot.snapshot.began > self._limits.keep_s:
            raise error
        snapshot = slot.snapshot
        body = excerpt.body_from(query, snapshot, stale=True)
        if body is None:
            raise error
        age_s = now - snapshot.began + snapshot.behind_s
        return Reply("stale", body, snapshot.as_of, stale=True, stored=False, age_s=age_s)

    # --- the instance -------------------------------------------------------------------------------------------------

    def readiness(self, configured: Iterable[Target], *, redis_up: bool) -> Readiness:
        """Count the configured boards by what could be answered for them now."""
        fresh = last_known = missing = untried = refused = 0
        for target in configured:
            slot = self._top_slot(target)
            if slot is None or slot.snapshot is None:
                missing += 1
                if slot is None or not isinstance(slot.error, WrongType):
                    untried += slot is None or slot.failures < _GIVEN_UP
                    refused += 1
            elif slot.failures or slot.restored:
                last_known += 1
            else:
                fresh += 1
        # One key that cannot be read blocks nothing: while Redis is up, it has been answered enough.
        ready = not refused or (redis_up and not untried and fresh + last_known > 0)
        return Readiness(ready, redis_up, fresh, last_known, missing)

    def is_known(self, target: Target) -> bool:
        """Tell whether anything is known of a board's top: a snapshot however old, or that its key is no board."""
        slot = self._top_slot(target)
        return slot is not None and (slot.snapshot is not None or isinstance(slot.error, WrongType))

    async def warm(self, target: Target) -> bool:
        """Load a board's top if nothing is known of it; return whether it is answered now (wrong type included)."""
        try:
            await self._cached(Query("top", target))
        except (WrongType, PeriodNotFound):
            return True
        except GatewayError:
            return False
        return self.is_answered(target)

    def is_answered(self, target: Target) -> bool:
        """Tell whether a board's top was read by this process, and the last try did not fail (wrong type included)."""
        slot = self._top_slot(target)
        return slot is not None and not slot.restored and (not slot.failures or isinstance(slot.error, WrongType))

    def _top_slot(self, target: Target) -> Slot | None:
        return self.store.get(SnapshotKey(target.leaderboard, target.label, 1, TOP_LIMIT))


def _again(error: Exception | None) -> Exception:
    """Return the error to raise for a cached kind: a load that ran out of time is no word about this request's budget.

    Never the stored object itself: many callers raise it, and each would lengthen its traceback.
    """
    if isinstance(error, GatewayError) and not isinstance(error, OriginTimeout):
        return type(error)(error.detail)
    if error is None or isinstance(error, OriginTimeout | TimeoutError):
        return OriginUnavailable()
    return error


def _has_ended(target: Target, clock: Clock) -> bool:
    period = target.period
    return period is not None and not period.start <= clock.wall() < period.end
