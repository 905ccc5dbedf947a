"""Limits: the numbers that bound what a read may cost and how old a node may be.

Knows: their names and defaults.
Must not know: where they were configured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """See the settings of the same names; all durations are seconds."""

    read_timeout_s: float = 0.2
    request_budget_s: float = 0.5
    max_lag_s: float = 2.0
    failover_stale_s: float = 60.0
    primary_fallback: bool = True
    primary_max_reads_per_s: float = 500.0

    @property
    def sample_s(self) -> float:
        """How often lag is measured: four times within what it may be, and every second at least.

        The same look finds links that went down, so a generous limit must not make it seldom.
        """
        return min(self.max_lag_s / 4, 1.0)

    @property
    def silence_s(self) -> float:
        """How long a primary may be silent before it counts as not answering: three samples, or two attempts."""
        return max(3 * self.sample_s, 2 * self.read_timeout_s)
