"""Confirmations: whether a key that a replica calls absent is really absent.

Knows: ``EXISTS`` on the key's primary, sharing, a short memory, a rate.
Must not know: how the primary is found and asked, what the key holds.

A replica's word is not enough: while a slot moves, a replica says "no such key" of a key that lives. And a flood of
reads of a board that has not begun (the first minutes of a week) must not become a flood on the primary.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
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
_REMEMBERED = 4096
SHARE = 0.1
"""Of ``primary_max_reads_per_s``, for confirmations alone."""

ReadOwner: TypeAlias = Callable[[Request], Awaitable[tuple[Any, Stamp]]]


class Confirmations:
    """Ask primaries about absent keys: once for everyone who wants to know, seldom, and no more often than allowed."""

    def __init__(self, read_owner: ReadOwner, limits: Limits, *, clock: Clock, counters: Counters) -> None:
        self._read_owner = read_owner
        per_s = limits.primary_max_reads_per_s * SHARE
        self._clock = clock
        self._rate = Rate(per_s, clock.monotonic(), burst=max(1.0, per_s))
        self._absent: TTLCache[bytes, Stamp] = TTLCache(_REMEMBERED, REMEMBERED_S, timer=clock.monotonic)
        self._flights: dict[bytes, asyncio.Task[Stamp | None]] = {}
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
            self._take()
            flight = self._flights[request.key] = asyncio.get_running_loop().create_task(self._ask(request.key))
            flight.add_done_callback(lambda done: self._ended(request.key, done))
        else:
            self._counter.add("shared")
        stamp = await asyncio.shield(flight)  # it belongs to nobody: who leaves does not end it
        if stamp is not None:
            return None, stamp
        self._take()  # the replica was wrong: each such read is one more on the primary
        return await self._read_owner(request)

    def _take(self) -> None:
        if not self._rate.take(self._clock.monotonic()):
            self._counter.add("refused")
            raise Overloaded

    async def _ask(self, key: bytes) -> Stamp | None:
        exists, stamp = await self._read_owner(Plain(b"EXISTS", key))
        self._counter.add("present" if exists else "absent")
        if exists:
            return None
        self._absent[key] = stamp
        return stamp

    def _ended(self, key: bytes, flight: asyncio.Task[Stamp | None]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.cancelled() and flight.exception() is not None:  # retrieved, even if nobody is left to see it
            self._counter.add("failed")

    async def stop(self) -> None:
        """End what is under way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*flights, return_exceptions=True)
