"""Probe: how old is what a client sees? The time is written as a score and read back through the edge.

Knows: the top's JSON, percentiles, what counts towards the published bound.
Must not know: Redis clients, the edge's kind, command lines.

The board holds one member, whose score is the wall time of its last write. The age that a client sees is its own time
minus that score, so writer and reader must be on one machine, or their clocks in step.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import NamedTuple

import httpx

from gateway.clock import Clock
from gateway.errors import GatewayError

MEMBER = "probe"
WRITE_EVERY_S = 0.02
"""Between two writes; what the probe can be wrong by."""

READ_TIMEOUT_S = 10.0
UNDER_WAY = 500
"""Reads waiting at once; beyond it a read is counted as failed, not sent: the edge does not keep up."""


class ProbeFailed(GatewayError):
    """The probe could not run; ``detail`` is a sentence for the operator."""

    code = "probe_failed"
    title = "Probe failed"


class Plan(NamedTuple):
    """What to read, how often a second, for how long, and the bound to compare with."""

    url: str
    reads_per_s: float
    seconds: float
    bound_s: float


class Report(NamedTuple):
    """What clients saw: the ages of answers in seconds, sorted; how many said themselves that they are stale; how
    many reads gave no answer, and why, by count."""

    ages_s: Sequence[float]
    marked_stale: int
    failures: dict[str, int]
    bound_s: float

    @property
    def worst_s(self) -> float:
        """The oldest answer that was not marked stale; 0 if there was none."""
        return self.ages_s[-1] if self.ages_s else 0.0

    @property
    def kept(self) -> bool:
        """Whether the bound held, and there was an answer to judge it by."""
        return bool(self.ages_s) and self.worst_s <= self.bound_s

    def percentile(self, share: float) -> float:
        """Return the age that this share of answers does not exceed (nearest rank)."""
        return self.ages_s[max(0, ceil(share * len(self.ages_s)) - 1)] if self.ages_s else 0.0

    def lines(self) -> list[str]:
        """Return the report for people."""
        failed = sum(self.failures.values())
        reads = len(self.ages_s) + self.marked_stale + failed
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        ages = "  ".join(f"{name} {self.percentile(share):.2f} s" for name, share in shares.items())
        verdict = "kept" if self.kept else "NOT KEPT" if self.ages_s else "nothing to judge by"
        lines = [
            f"reads   {reads}: {len(self.ages_s)} answered, {self.marked_stale} marked stale, {failed} failed",
            f"age     {ages}  worst {self.worst_s:.2f} s",
            f"bound   {self.bound_s:g} s: {verdict}",
        ]
        return [*lines, *(f"failed  {count} × {reason}" for reason, count in sorted(self.failures.items()))]


class Seen(NamedTuple):
    """One answer: the score of the probe's member, and whether the answer said that it is stale."""

    score: float
    stale: bool


def seen_in(body: bytes) -> Seen:
    """Return what one answer shows. Raise ValueError if the probe's member is not at the top, alone."""
    page = json.loads(body)
    entries = page["entries"]
    if len(entries) != 1 or entries[0]["member"] != MEMBER:
        raise ValueError("the board does not hold the probe's member")
    return Seen(float(entries[0]["score"]), bool(page["stale"]))


class Probe:
    """Write and read at the same time; ``write`` sets the member's score to the wall time that it is given."""

    def __init__(self, write: Callable[[float], Awaitable[None]], client: httpx.AsyncClient, clock: Clock) -> None:
        self._write = write
        self._client = client
        self._clock = clock
        self._ages: list[float] = []
        self._marked_stale = 0
        self._failures: dict[str, int] = {}

    async def settle(self, plan: Plan) -> None:
        """Wait until the member that was just written shows, at most for the bound: edges may hold the empty board.

        A board on which it does not show by then is left to ``run``, which counts every answer.
        """
        until = self._clock.monotonic() + plan.bound_s
        while self._clock.monotonic() < until:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
                seen_in((await self._client.get(plan.url, timeout=READ_TIMEOUT_S)).content)
                return
            await self._clock.sleep(WRITE_EVERY_S)

    async def run(self, plan: Plan) -> Report:
        """Read at even intervals whatever the answers take, while scores change all the time; return what was seen.

        What the writer raises ends the probe. A read that fails is counted.
        """
        writer = asyncio.create_task(self._write_on())
        reads: set[asyncio.Task[None]] = set()
        began = self._clock.monotonic()
        try:
            for number in range(round(plan.reads_per_s * plan.seconds)):
                await self._clock.sleep(max(0.0, began + number / plan.reads_per_s - self._clock.monotonic()))
                if writer.done():
                    break
                if len(reads) >= UNDER_WAY:
                    self._failed("too many reads waiting")
                    continue
                task = asyncio.create_task(self._read(plan.url))
                reads.add(task)
                task.add_done_callback(reads.discard)
            await asyncio.gather(*reads)
        finally:
            writer.cancel()
            for task in reads:
                task.cancel()
            outcome = (await asyncio.gather(writer, return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            raise outcome
        return Report(sorted(self._ages), self._marked_stale, self._failures, plan.bound_s)

    async def _write_on(self) -> None:
        while True:
            await self._write(self._clock.wall())
            await self._clock.sleep(WRITE_EVERY_S)

    async def _read(self, url: str) -> None:
        try:
            response = await self._client.get(url, timeout=READ_TIMEOUT_S)
        except httpx.HTTPError as error:
            self._failed(type(error).__name__)
            return
        arrived = self._clock.wall()
        if response.status_code != 200:
            self._failed(f"status {response.status_code}")
            return
        try:
            seen = seen_in(response.content)
        except (ValueError, KeyError, TypeError):
            self._failed("an answer without the probe's member")
            return
        if seen.stale:
            self._marked_stale += 1  # it says how old it is: outside the bound
        else:
            self._ages.append(arrived - seen.score)

    def _failed(self, reason: str) -> None:
        self._failures[reason] = self._failures.get(reason, 0) + 1
