"""SingleFlight: many callers with one key share one load.

Knows: keys, tasks, cancellation.
Must not know: leaderboards, freshness, Redis, HTTP.

The rules, each a test:

1. Many callers, one load; a caller can tell whether it shares.
2. A flight belongs to nobody: cancelling any caller, the first included, disturbs neither the others nor the load.
3. An error reaches every waiter, and is retrieved even if none is left.
4. The entry goes when the task ends, and only if it is still that task's.
5. A load has its own deadline; a caller's time-out bounds that caller's wait only.
6. The task runs in a clean context: one request's ids do not leak into another's work.
7. Tasks are held strongly, counted, and drained at shutdown within a limit.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Flight(Generic[V]):
    """One shared load under way. Made by ``SingleFlight`` only."""

    __slots__ = ("_error", "_task", "_value", "waiters")

    def __init__(self) -> None:
        self.waiters = 0
        self._error: BaseException | None = None
        self._value: V | None = None
        self._task: asyncio.Task[None]

    @property
    def done(self) -> bool:
        """Whether the load has ended, either way."""
        return self._task.done()

    async def wait(self, limit_s: float | None = None) -> V:
        """Return the load's value, or raise its error.

        ``limit_s`` bounds this wait alone: ``TimeoutError`` leaves the load and the other callers as they are, and
        so does cancelling this call. A flight that was abandoned at shutdown raises ``asyncio.CancelledError``.
        """
        self.waiters += 1
        try:
            async with asyncio.timeout(limit_s):
                # shield: this caller's cancellation ends its own wait, never the task (rule 2).
                await asyncio.shield(self._task)
        finally:
            self.waiters -= 1
        if self._error is not None:
            # One error object, many raisers: without the reset each of 10,000 waiters would lengthen its traceback.
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[return-value]  # set whenever _error is not

    async def run(self, load: Callable[[], Coroutine[Any, Any, V]], deadline_s: float | None) -> None:
        """Run the load inside its own deadline and keep what came of it; never raises but on cancellation."""
        try:
            async with asyncio.timeout(deadline_s):
                self._value = await load()
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the waiters (rule 3)
            self._error = error

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start the task in an empty context (rule 6)."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(coroutine, context=contextvars.Context())
        return self._task

    async def settle(self, limit_s: float) -> None:
        """Wait for the end at most ``limit_s``, then cancel."""
        await asyncio.wait({self._task}, timeout=limit_s)
        self._task.cancel()
        await asyncio.wait({self._task})


class SingleFlight(Generic[K, V]):
    """Hold at most one flight a key.

    ``deadline_s`` bounds each load (None: unbounded). Every method but ``drain`` is synchronous, so that a caller can
    look, decide and join without another caller running in between.
    """

    def __init__(self, deadline_s: float | None = None) -> None:
        self._deadline_s = deadline_s
        self._flights: dict[K, Flight[V]] = {}
        self._running: set[Flight[V]] = set()
        self.started = 0

    def __len__(self) -> int:
        """Return how many loads are under way."""
        return len(self._running)

    @property
    def waiters(self) -> int:
        """Return how many callers wait for loads."""
        return sum(flight.waiters for flight in self._running)

    def get(self, key: K) -> Flight[V] | None:
        """Return the flight under way for this key."""
        return self._flights.get(key)

    def join(self, key: K, load: Callable[[], Coroutine[Any, Any, V]]) -> tuple[Flight[V], bool]:
        """Return this key's flight, started now if there was none, and whether it was there already.

        ``load`` is called at most once, inside the new task. The caller need not wait: a flight with no waiter runs
        to its end all the same.
        """
        flight = self._flights.get(key)
        if flight is not None:
            return flight, True
        flight = Flight()
        self._flights[key] = flight
        self._running.add(flight)  # the strong reference: the event loop itself keeps only a weak one (rule 7)
        self.started += 1
        task = flight.start(flight.run(load, self._deadline_s))
        task.add_done_callback(lambda _: self._land(key, flight))
        return flight, False

    def forget(self, key: K) -> None:
        """Let the next caller start a new load; the flight under way goes on for those who wait for it."""
        self._flights.pop(key, None)

    def _land(self, key: K, flight: Flight[V]) -> None:
        self._running.discard(flight)
        # 1. A flies under k. 2. forget(k). 3. B starts under k. 4. A lands: k is B's now and must stay (rule 4).
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def drain(self, limit_s: float) -> None:
        """Let every flight end; cancel those that outlast ``limit_s``."""
        running = list(self._running)
        await asyncio.gather(*(flight.settle(limit_s) for flight in running))
