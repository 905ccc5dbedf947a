"""Confirmations: whether a key that a replica calls absent is really absent.

Knows: ``EXISTS`` on the key's primary, sharing, a short memory, a rate.
Must not know: how the primary is found and asked, what the key holds.

A replica's word is not enough: while a slot moves, a replica says "no such key" of a key that lives. And a flood of
reads of a board that has not begun (the first minutes of a week) must not become a flood on the primary.

What is limited is how often the primary is asked, not about how many keys: whoever waits for a turn goes with it. A
thousand boards may begin at one midnight, and each of them is asked for every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, TypeAlias

from cachetools import TTLCache

from gateway.clock import Clock
from gateway.counters import Counters
from gateway.errors import Overloaded
from gateway.model import Stamp
from gateway.replicas.allowance import Rate
from gateway.replicas.commands import Plain, Request
from gateway.replicas.limits import Limits

REMEMBERED_S = 1.0
_REMEMBERED = 16_384
SHARE = 0.1
"""Of ``primary_max_reads_per_s``, for confirmations alone."""
TOGETHER = 100
"""Keys asked about in one turn, which counts as one read: that many ``EXISTS`` in one packet cost Redis about what one
window does."""
WAIT_S = 0.3
"""A key whose turn would not come in this time is refused at once: a request's whole budget is half a second."""

ReadOwner: TypeAlias = Callable[[Request], Awaitable[tuple[Any, Stamp]]]


class Confirmations:
    """Ask primaries about absent keys: once for everyone who wants to know, seldom, and no more often than allowed."""

    def __init__(self, read_owner: ReadOwner, limits: Limits, *, clock: Clock, counters: Counters) -> None:
        self._read_owner = read_owner
        per_s = limits.primary_max_reads_per_s * SHARE
        self._clock = clock
        self._rate = Rate(per_s, clock.monotonic(), burst=max(1.0, per_s))
        self._absent: TTLCache[bytes, Stamp] = TTLCache(_REMEMBERED, REMEMBERED_S, timer=clock.monotonic)
        self._flights: dict[bytes, asyncio.Future[Stamp | None]] = {}
        self._waiting: dict[bytes, asyncio.Future[Stamp | None]] = {}
        """Those of the flights whose turn is still to come, in their order."""
        self._turns: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._counter = counters.counter(
            "gateway_redis_confirmations_total", "Questions whether an absent key is really absent", ("outcome",)
        )

    async def confirm(self, request: Request) -> tuple[Any | None, Stamp]:
        """Return None if the key is absent, else the primary's reply to ``request``. Raises as a read does."""
        stamp = self._absent.get(request.key)
        if stamp is not None:
            self._counter.add("remembered")
            return None, stamp
        flight = self._flights.get(request.key)
        if flight is None:
            flight = self._line_up(request.key)
        else:
            self._counter.add("shared")
        stamp = await asyncio.shield(flight)  # it belongs to nobody: who leaves does not end it
        if stamp is not None:
            return None, stamp
        # The replica was wrong: each such read is one more on the primary.
        if not self._rate.take(self._clock.monotonic()):
            raise self._refused()
        return await self._read_owner(request)

    def _refused(self) -> Overloaded:
        self._counter.add("refused")
        return Overloaded()

    def _line_up(self, key: bytes) -> asyncio.Future[Stamp | None]:
        if len(self._waiting) >= TOGETHER * self._rate.within(self._clock.monotonic(), WAIT_S):
            raise self._refused()
        loop = asyncio.get_running_loop()
        flight: asyncio.Future[Stamp | None] = loop.create_future()
        flight.add_done_callback(lambda done: self._ended(key, done))
        self._flights[key] = self._waiting[key] = flight
        if self._turns is None or self._turns.done():
            self._turns = loop.create_task(self._take_turns())
        return flight

    async def _take_turns(self) -> None:
        while self._waiting:
            # At least to the end of this turn of the loop: whoever lines up in it goes along.
            await self._clock.sleep(self._rate.wait_s(self._clock.monotonic()))
            if not self._rate.take(self._clock.monotonic()):
                continue
            for key in list(islice(self._waiting, TOGETHER)):
                task = asyncio.get_running_loop().create_task(self._ask(key, self._waiting.pop(key)))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _ask(self, key: bytes, flight: asyncio.Future[Stamp | None]) -> None:
        try:
            exists, stamp = await self._read_owner(Plain(b"EXISTS", key))
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            flight.set_exception(error)
            return
        self._counter.add("present" if exists else "absent")
        if not exists:
            self._absent[key] = stamp
        flight.set_result(None if exists else stamp)

    def _ended(self, key: bytes, flight: asyncio.Future[Stamp | None]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.cancelled() and flight.exception() is not None:  # retrieved, even if nobody is left to see it
            self._counter.add("failed")

    async def stop(self) -> None:
        """End what is under way."""
        tasks = [*self._asking, *([] if self._turns is None else [self._turns])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for flight in list(self._flights.values()):
            flight.cancel()
        self._waiting.clear()
