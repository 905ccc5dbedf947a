"""Shared tier: encoded snapshots in a Redis of its own, so that many instances pay one origin read per TTL.

Knows: aiocache's Redis cache, leases, the loader it wraps.
Must not know: HTTP, where boards are read, freshness beyond how long an entry lives.

One load, in words: 1. ask the tier; what lies there is younger than the TTL by the tier's own clock. 2. With nothing
there, the same question takes the lease: who gets it loads, puts the snapshot there and gives the lease back. 3. Who
does not get it asks again, for a bounded time. Whatever goes wrong, or takes too long, ends in a load of one's own, as
if the tier were off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from aiocache import RedisCache  # type: ignore[import-untyped]  # ships no stubs
from aiocache.serializers import NullSerializer  # type: ignore[import-untyped]  # ships no stubs
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway import encode
from gateway.clock import Clock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.fingerprint import fingerprint
from gateway.loader import Loader
from gateway.model import SnapshotKey, Target

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECTIONS = 8
_TOLERATED = 2
"""Failures in a row before the tier is left alone: one late reply on a busy machine is no outage."""
_FIRST_REST_S, _LONGEST_REST_S = 0.5, 8.0
"""How long it is left alone then; doubled with each failure more."""
_POLLS_S = (0.002, 0.004, 0.008, 0.016)
"""Pauses between looks at the tier while another instance loads, the last one repeated: most loads take 2 ms."""
_WAIT_SHARE = 0.6
"""The part of a load's budget spent waiting for another instance; the rest is for a load of one's own."""
_LEAST_LIFE_S = 0.005

# One command, one instant. An age read apart from its entry could belong to the entry before or after it; a lease taken
# apart from the look could be taken after another instance had put the entry there and given the lease back.
_ASK = """
local entry = redis.call('get', KEYS[1])
if entry then return {entry, redis.call('pttl', KEYS[1])} end
if redis.call('set', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return {false, 1} end
return {false, 0}
"""
# A lease that ran out may be another instance's by now.
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Found(NamedTuple):
    """An entry of the tier and its age in seconds, by the tier's clock."""

    blob: bytes
    age_s: float


class Answer(NamedTuple):
    """What the tier says to a question: the entry, or whether the lease was taken."""

    found: Found | None
    leased: bool


class TierError(Exception):
    """The tier did not do what was asked, in time."""


class SharedTier:
    """Blobs and leases in a Redis of their own. Each operation takes ``timeout_s`` at most, or raises ``TierError``.

    After failures in a row the tier rests: ``away`` says so, and nothing is asked of it. ``random`` gives numbers in
    [0, 1) that differ between instances. The account needs ``GET``, ``PTTL``, ``SET``, ``PSETEX``, ``DEL`` and ``EVAL``
    on keys under ``prefix``.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        ttl_s: float,
        timeout_s: float,
        clock: Clock,
        counters: Counters,
        random: Callable[[], float],
    ) -> None:
        self.ttl_s = ttl_s
        self.timeout_s = timeout_s
        self._prefix = prefix
        self._clock = clock
        self._random = random
        self._cache = _cache(url, timeout_s)
        self._failures = 0
        self._away_until = 0.0
        self.loads = counters.counter(
            "gateway_shared_tier_loads_total", "Loads by what the shared tier did for them.", ("outcome",)
        )

    @property
    def away(self) -> bool:
        """Whether the tier rests after failures."""
        return self._clock.monotonic() < self._away_until

    def name_of(self, target: Target, key: SnapshotKey, life_s: float) -> str:
        """Return an entry's key: instances that were configured otherwise use others."""
        made_of = fingerprint(target).hex()
        return f"{self._prefix}{key.leaderboard}:{key.label or ''}:{key.first}-{key.last}:{made_of}:{life_s * 1000:.0f}"

    async def ask(self, name: str, life_s: float, *, token: str, lease_s: float) -> Answer:
        """Return an entry whose whole life is ``life_s``, and its age, true to what putting it there took.

        With no entry there, take the lease for ``lease_s``, if it is free; ``token`` gives it back.
        """
        answer = await self._do(
            lambda: self._cache.raw("eval", _ASK, 2, name, _lease(name), token, f"{lease_s * 1000:.0f}")
        )
        if answer is None:  # aiocache's answer to everything where AIOCACHE_DISABLE is set in the environment
            return Answer(None, leased=True)
        entry, number = answer
        if entry is None:
            return Answer(None, leased=bool(number))
        return Answer(Found(entry, max(0.0, life_s - number / 1000)), leased=False)

    async def put(self, name: str, blob: bytes, left_s: float) -> None:
        """Keep an entry for what is left of its life."""
        await self._do(lambda: self._cache.set(name, blob, ttl=float(left_s)))

    def token(self) -> str:
        """Return a lease's token: 53 bits are enough to tell the few instances apart that ask for one entry at once."""
        return f"{self._random()}"

    async def release(self, name: str, token: str) -> None:
        """Give a lease back, unless it ran out."""
        await self._do(lambda: self._cache.raw("eval", _RELEASE, 1, _lease(name), token))

    async def stop(self) -> None:
        """Close the connections. Not ``cache.close()``: what it calls is deprecated in redis-py."""
        await self._cache.client.aclose()

    async def _do(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run one operation; the one place where aiocache's and redis-py's errors become ours."""
        try:
            result = await operation()
        except (RedisError, OSError, TimeoutError) as error:
            self._fail(error)
            raise TierError(str(error)) from error
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # Python 3.11's wait_for, which aiocache calls, swallows a cancellation that comes together with the result.
            raise asyncio.CancelledError
        if self._failures > _TOLERATED:
            log.warning("shared tier works again")
        self._failures = 0
        return result

    def _fail(self, error: Exception) -> None:
        """Count a failure, and let the tier rest after some in a row."""
        self._failures += 1
        further = self._failures - _TOLERATED - 1
        if further < 0 or self.away:  # loads that asked before the rest began do not make it longer
            return
        if not further:
            what = str(error) or type(error).__name__
            log.warning("shared tier fails, boards are loaded as if it were off: %s", what)
        rest_s = min(_FIRST_REST_S * 2.0 ** min(further, 8), _LONGEST_REST_S)
        self._away_until = self._clock.monotonic() + rest_s


class SharedTierLoader:
    """A loader that shares what it loads with other instances.

    ``budget_s`` is what the whole load may take: waiting for another instance never uses it up.
    """

    def __init__(self, inner: Loader, tier: SharedTier, *, clock: Clock, budget_s: float) -> None:
        self._inner = inner
        self._tier = tier
        self._clock = clock
        self._wait_s = budget_s * _WAIT_SHARE
        # Longer than any load: a lease that ends while its load is slow would let everybody load, just then.
        self._lease_s = budget_s + 4 * tier.timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self, target: Target, key: SnapshotKey) -> Snapshot:
        """Load from the tier, else as the inner loader does, raising what it raises."""
        life_s = min(self._tier.ttl_s, target.board.ttl_s)
        if life_s <= 0 or self._tier.away:
            self._tier.loads.add("skipped")
            return await self._inner.load(target, key)
        name, token = self._tier.name_of(target, key, life_s), self._tier.token()
        try:
            shared, leased = await self._shared(name, key, life_s, token)
        except TierError:
            self._tier.loads.add("failed")
            return await self._inner.load(target, key)
        except asyncio.CancelledError:
            self._share_behind(target, name, None, token)  # it may have been taken, though nobody heard of it
            raise
        if shared is not None:
            return shared
        self._tier.loads.add("miss")
        return await self._load(target, key, name, token if leased else None)

    async def settle(self) -> None:
        """Let what is being put into the tier end; each takes a few time-outs at most."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Settle, and close the tier's connections."""
        await self.settle()
        await self._tier.stop()

    async def _shared(self, name: str, key: SnapshotKey, life_s: float, token: str) -> tuple[Snapshot | None, bool]:
        """Return what the tier holds, waiting for it while another instance loads; else whether the lease was free."""
        deadline = self._clock.monotonic() + self._wait_s
        polls = 0
        while True:
            began = self._clock.monotonic()
            found, leased = await self._tier.ask(name, life_s, token=token, lease_s=self._lease_s)
            if found is not None:
                snapshot = self._snapshot(found, key, began)
                if snapshot is not None:
                    self._tier.loads.add("waited" if polls else "hit")
                return snapshot, False
            if leased or began >= deadline:
                return None, leased
            await self._clock.sleep(_POLLS_S[min(polls, len(_POLLS_S) - 1)])
            polls += 1

    def _snapshot(self, found: Found, key: SnapshotKey, began: float) -> Snapshot | None:
        try:
            read = encode.restore(found.blob, key, monotonic=began, wall=self._clock.wall())
        except ValueError:
            return None  # of another version: it is replaced
        # By the tier's clock: another instance's wall clock says nothing about an age.
        return Snapshot(key, read.content, began=began - found.age_s, as_of=read.as_of)

    async def _load(self, target: Target, key: SnapshotKey, name: str, token: str | None) -> Snapshot:
        snapshot = None
        try:
            snapshot = await self._inner.load(target, key)
            return snapshot
        finally:
            # Failed or cancelled, the lease goes back all the same, and another instance tries.
            self._share_behind(target, name, snapshot, token)

    def _share_behind(self, target: Target, name: str, snapshot: Snapshot | None, token: str | None) -> None:
        """Share behind the answer: who waits for that need not wait for the tier as well."""
        task = asyncio.create_task(self._share(target, name, snapshot, token), name="shared tier")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _share(self, target: Target, name: str, snapshot: Snapshot | None, token: str | None) -> None:
        try:
            if snapshot is not None and not snapshot.stale and not snapshot.short_lived and not self._tier.away:
                life_s = min(self._tier.ttl_s, target.board.ttl_s)
                left_s = life_s - (self._clock.monotonic() - snapshot.began)
                if left_s >= _LEAST_LIFE_S:
                    await self._tier.put(name, snapshot.dump(), left_s)
            if token is not None:
                await self._tier.release(name, token)
        except TierError:
            return  # told and counted already; the lease runs out by itself


def _lease(name: str) -> str:
    return f"{name}:lease"


def _cache(url: str, timeout_s: float) -> Any:
    """Build aiocache's Redis cache for a URL: one attempt an operation, and a bounded wait for a connection."""
    parts: dict[str, Any] = dict(parse_url(url))
    return RedisCache(
        serializer=NullSerializer(encoding=None),
        timeout=timeout_s,
        endpoint=parts.pop("host", "127.0.0.1"),
        port=parts.pop("port", 6379),
        db=parts.pop("db", 0),
        password=parts.pop("password", None),
        pool_max_size=_CONNECTIONS,
        create_connection_timeout=timeout_s,
        connection_pool_class=BlockingConnectionPool,
        # redis-py's defaults are ten retries and 5 s; aiocache cancels an operation that is late, which closes its
        # connection, so that no later reply can be taken for another's.
        connection_pool_kwargs={**parts, "timeout": timeout_s, "retry": Retry(NoBackoff(), 0)},
    )
