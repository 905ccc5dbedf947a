"""Allowances: how much of each kind of read may be under way, and how fast the rare kinds may go.

Knows: counting, rates.
Must not know: nodes, commands, what the kinds mean.
"""

from __future__ import annotations

from math import inf
from typing import Literal

Lane = Literal["snapshot", "member", "neighbors", "profiles"]

LANES: dict[Lane, int] = {"snapshot": 128, "member": 2048, "neighbors": 1024, "profiles": 256}
"""Reads of each kind under way in this process before more are refused at once. Member reads cost Redis a few µs each,
windows ten times that; snapshots are coalesced, so that many at once means many boards."""


class Allowance:
    """How many reads of one kind are under way, and how many may be."""

    __slots__ = ("limit", "outstanding", "refused")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.outstanding = 0
        self.refused = 0


class Rate:
    """A token bucket: ``per_s`` a second, ``burst`` at once (default: a tenth of a second's worth, 1 at least)."""

    __slots__ = ("_at", "_burst", "_tokens", "per_s")

    def __init__(self, per_s: float, now: float, burst: float | None = None) -> None:
        self.per_s = per_s
        self._burst = max(1.0, per_s / 10) if burst is None else burst
        self._tokens = self._burst if per_s > 0 else 0.0
        self._at = now

    def take(self, now: float, *, leave: float = 0.0) -> bool:
        """Take one token if there is one; ``leave``: the share of the burst that is not for this caller."""
        self._refill(now)
        if self._tokens < 1.0 + leave * self._burst:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Return in how many seconds there will be a token: 0 for now, infinite for never."""
        self._refill(now)
        if self._tokens >= 1.0:
            return 0.0
        # A little more, or rounding could leave a sleeper a hair short of it again and again.
        return (1.0 - self._tokens) / self.per_s + 0.001 if self.per_s > 0 else inf

    def within(self, now: float, seconds: float) -> int:
        """Return how many tokens there will be in the next ``seconds``, those there are included."""
        self._refill(now)
        return int(self._tokens + seconds * self.per_s)

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.per_s)
        self._at = now


class RetryBudget:
    """Retries of the whole process: a tenth of its reads, and a few a second for a quiet one.

    An outage must not double the load on what is left: when every read fails, one in ten is tried again.
    """

    SHARE = 0.1
    FLOOR_PER_S = 10.0
    MOST = 1000.0
    """Saved up at most: enough for all that is under way when a busy node dies, and no licence for a storm."""

    __slots__ = ("_at", "_reads", "_tokens")

    def __init__(self, now: float) -> None:
        self._tokens = self.FLOOR_PER_S
        self._reads = 0
        self._at = now

    def take(self, reads: int, now: float) -> bool:
        """Take one retry if there is one. ``reads``: how many reads this process has begun so far."""
        self._tokens += (reads - self._reads) * self.SHARE + (now - self._at) * self.FLOOR_PER_S
        self._tokens = min(self._tokens, self.MOST)
        self._reads, self._at = reads, now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
