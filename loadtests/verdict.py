"""The verdict on a load run: passed, failed, or void because the measurement itself cannot be trusted.

Knows: claims, and the four ways in which a load test deceives (see below).
Must not know: Locust, sockets, clocks.

1. Slow answers hide themselves: latencies count from when a request was due, and a run that was not answered at
   ``PACE`` of the rate asked for is void.
2. The generator is the limit: it must have been seen to reach ``HEADROOM`` times the claimed rate against a constant
   endpoint, and none of its processes may have been busier than ``BUSY`` of a core for ``BUSY_WINDOW_S``.
3. Generator and server disagree: a client's median that exceeds the server's by more than ``MARGIN_MS`` is said.
4. Names explode: everything is counted by route; the members asked for never make a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from loadtests.latencies import Buckets, percentile
from loadtests.tally import Pace

PACE = 0.95
HEADROOM = 1.5
BUSY = 0.90
BUSY_WINDOW_S = 5
MARGIN_MS = 5.0
COMPARED = 1000
"""Medians of fewer requests than this are not compared: they are those of the first moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run sets out to show. ``rate`` None: closed loop, no rate is claimed."""

    rate: float | None = None
    p99_ms: Mapping[str, float] = field(default_factory=dict)
    """The most a route's 99th percentile may be."""
    allowed_failures: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Reasons for which a route may fail (ranks while Redis is away: 503); all else may not happen, not once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one run measured, summed over the generator's processes."""

    latencies: Mapping[str, Buckets]
    failures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How often each route failed for each reason."""
    paces: Sequence[Pace] = ()
    calibrated_rate: float | None = None
    """The rate the same generator reached against the constant endpoint; None: it was not calibrated."""
    server_p50_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, its reasons, and what a reader should know beside them."""

    outcome: Literal["passed", "failed", "void"]
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """0 passed, 1 failed, 3 void (2 is a usage error)."""
        return {"passed": 0, "failed": 1, "void": 3}[self.outcome]

    def line(self, name: str) -> str:
        """Return the one line that a run ends with."""
        return f"verdict {name}: {self.outcome.upper()}" + (f" ({'; '.join(self.reasons)})" if self.reasons else "")


def judge(claim: Claim, measured: Measured) -> Verdict:
    """Return the verdict: void before failed before passed."""
    remarks = (*pace_remarks(measured.paces), *disagreements(measured))
    if void := void_reasons(claim, measured):
        return Verdict("void", void, remarks)
    if failed := broken_claims(claim, measured):
        return Verdict("failed", failed, remarks)
    return Verdict("passed", (), remarks)


def void_reasons(claim: Claim, measured: Measured) -> tuple[str, ...]:
    """Return why the numbers prove nothing, if they do not."""
    reasons = []
    if not any(measured.latencies.values()):
        reasons.append("nothing was answered")
    if (busiest := busiest_share(measured.paces)) > BUSY:
        reasons.append(f"a generator process used {busiest:.0%} of a core, more than {BUSY:.0%}")
    if any(len(pace.asked) > 2 and not pace.busy for pace in measured.paces):
        reasons.append("a generator process did not measure what it used of a core")
    if claim.rate is None:
        return tuple(reasons)
    if (kept := kept_share(measured.paces)) < PACE:
        reasons.append(f"{kept:.1%} of the asked rate was reached, less than {PACE:.0%}")
    if measured.calibrated_rate is None:
        reasons.append("the generator was not calibrated against a constant endpoint")
    elif measured.calibrated_rate < HEADROOM * claim.rate:
        reasons.append(
            f"the generator alone reaches {measured.calibrated_rate:,.0f}/s, "
            f"less than {HEADROOM} times the claimed {claim.rate:,.0f}/s"
        )
    return tuple(reasons)


def broken_claims(claim: Claim, measured: Measured) -> tuple[str, ...]:
    """Return which claims the numbers refute."""
    reasons: list[str] = []
    for route, failures in measured.failures.items():
        allowed = claim.allowed_failures.get(route, frozenset())
        reasons += [f"{count} × {route}: {why}" for why, count in failures.items() if count and why not in allowed]
    for route, most in claim.p99_ms.items():
        p99 = percentile(measured.latencies.get(route, {}), 0.99)
        if not p99 <= most:  # NaN, a route that saw nothing, is no proof either
            reasons.append(f"p99 of {route} is {p99:.1f} ms, more than {most:g} ms")
    return tuple(reasons)


def kept_share(paces: Sequence[Pace]) -> float:
    """Return answers over requests asked for, over all processes and the whole run; 0 if nothing was asked."""
    asked = sum(sum(pace.asked.values()) for pace in paces)
    return sum(sum(pace.answered.values()) for pace in paces) / asked if asked else 0.0


def by_second(paces: Sequence[Pace]) -> dict[int, tuple[int, int]]:
    """Return (asked, answered) for each second of the run in which anything was asked."""
    seconds = sorted({second for pace in paces for second in pace.asked})
    return {
        second: (
            sum(pace.asked.get(second, 0) for pace in paces),
            sum(pace.answered.get(second, 0) for pace in paces),
        )
        for second in seconds
    }


def busiest_share(paces: Sequence[Pace]) -> float:
    """Return the largest share of a core that one process used over ``BUSY_WINDOW_S`` seconds, or its whole run."""
    return max((_busiest_window([pace.busy[second] for second in sorted(pace.busy)]) for pace in paces), default=0.0)


def _busiest_window(shares: Sequence[float]) -> float:
    if not shares:
        return 0.0
    width = min(BUSY_WINDOW_S, len(shares))
    return max(math.fsum(shares[start : start + width]) / width for start in range(len(shares) - width + 1))


def pace_remarks(paces: Sequence[Pace]) -> tuple[str, ...]:
    """Say in how many seconds less than ``PACE`` of what was asked for was answered, and the worst of them."""
    shares = {second: answered / asked for second, (asked, answered) in by_second(paces).items() if asked}
    if not shares:
        return ()
    slow = [second for second, share in shares.items() if share < PACE]
    worst = min(shares, key=lambda second: shares[second])
    remark = (
        f"{kept_share(paces):.1%} of the asked rate reached; {len(slow)} of {len(shares)} seconds below {PACE:.0%}, "
        f"the worst second {worst} at {shares[worst]:.0%}"
    )
    return (remark,)


def disagreements(measured: Measured) -> tuple[str, ...]:
    """Say for which routes the generator's median and the server's own differ by more than the margin."""
    remarks = []
    for route, server_ms in measured.server_p50_ms.items():
        buckets = measured.latencies.get(route, {})
        client_ms = percentile(buckets, 0.5)
        if sum(buckets.values()) >= COMPARED and client_ms - server_ms > MARGIN_MS:
            remarks.append(
                f"the client's median of {route} is {client_ms:.1f} ms, the server's {server_ms:.1f} ms: "
                f"more than {MARGIN_MS:g} ms lie between them, in queues before the server or in the generator"
            )
    return tuple(remarks)


def report(name: str, claim: Claim, measured: Measured) -> dict[str, Any]:
    """Return everything about a run as JSON data: verdict, routes, seconds, generator."""
    verdict = judge(claim, measured)
    return {
        "scenario": name,
        "outcome": verdict.outcome,
        "reasons": list(verdict.reasons),
        "remarks": list(verdict.remarks),
        "rate_asked": claim.rate,
        "kept_share": kept_share(measured.paces) if measured.paces else None,
        "calibrated_rate": measured.calibrated_rate,
        "generator_busiest": busiest_share(measured.paces),
        "routes": {
            route: {
                "requests": sum(buckets.values()),
                "failures": dict(measured.failures.get(route, {})),
                "p50_ms": percentile(buckets, 0.5),
                "p99_ms": percentile(buckets, 0.99),
                "p999_ms": percentile(buckets, 0.999),
                "most_ms": max(buckets, default=math.nan),
                "server_p50_ms": measured.server_p50_ms.get(route),
            }
            for route, buckets in measured.latencies.items()
            if buckets
        },
        "seconds": [[second, *counts] for second, counts in by_second(measured.paces).items()],
    }


def calibrated_rate(told: Mapping[str, Any]) -> float:
    """Return the rate that a calibrating run's report shows; 0 where its generator was itself at its limit."""
    if told["generator_busiest"] > BUSY or told["kept_share"] is None or told["kept_share"] < PACE:
        return 0.0
    return float(told["rate_asked"] * told["kept_share"])
