"""Whether a long run was sound: nothing grew, ranks were right, and the log said only what is documented.

Knows: samples over time, the report of a load run, log lines.
Must not know: processes, or how anything was sampled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, get_args

from gateway.replicas.choice import State
from loadtests import reads
from loadtests.verdict import PACE

RIGHT_SHARE = 0.9999
RANKED = (reads.RANK, reads.NEIGHBORS)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much of something there may be more at the end than after the start."""

    name: str
    share: float
    slack: float
    """Growth below this is never too much: caches that fill once, a connection more."""


LIMITS = (
    Growth("resident_mib", 0.10, 8.0),
    Growth("open_files", 0.10, 10.0),
    Growth("tasks", 0.10, 10.0),
    Growth("flights", 0.0, 5.0),
)

DOCUMENTED = (
    r"leaderboard-gateway listens on http://\S+(, http://\S+)*",
    r"all workers accept connections",
    rf"(primary|replica) \S+ is ({'|'.join(get_args(State))})( \([^()]*\))?",
    r"primary \S+, replicas (none|\S+(, \S+)*)",
    r"no Sentinel says where \S+ is",
    r"the Sentinels answer",
    r"draining",
    r"stopped",
)
"""What the gateway may say in a soak: the lines of the table in ``docs/operations.md``, and no others."""


def right_share(report: Mapping[str, Any]) -> float:
    """Return the share of member reads that were answered, and answered right; 0 if there were none."""
    routes = [report["routes"][name] for name in RANKED if name in report["routes"]]
    asked = sum(route["requests"] for route in routes)
    wrong = sum(sum(route["failures"].values()) for route in routes)
    return (asked - wrong) / asked if asked else 0.0


def top_failures(report: Mapping[str, Any]) -> int:
    """Return how many reads of the top failed."""
    return sum(sum(route["failures"].values()) for name, route in report["routes"].items() if name not in RANKED)


def grown(samples: Sequence[Mapping[str, float]], limits: Iterable[Growth] = LIMITS) -> list[str]:
    """Return what is more at the end than it may be: the median of the last third against that of the second.

    The first third is left out: caches fill, connections open. Fewer than six samples say nothing, and that is said.
    """
    third = len(samples) // 3
    if third < 2:
        return [f"{len(samples)} samples are too few to tell whether anything grows"]
    found = []
    for limit in limits:
        before = median(sample[limit.name] for sample in samples[third : 2 * third])
        after = median(sample[limit.name] for sample in samples[-third:])
        if after - before > max(limit.slack, limit.share * before):
            found.append(f"{limit.name} grew from {before:,.1f} to {after:,.1f}")
    return found


def undocumented(lines: Iterable[str]) -> list[str]:
    """Return log lines (JSON) that are errors, carry a trace, are no JSON, or say what is not documented."""
    known = re.compile("|".join(f"(?:{pattern})" for pattern in DOCUMENTED))
    return [line for line in lines if line.strip() and not _expected(line, known)]


def _expected(line: str, known: re.Pattern[str]) -> bool:
    try:
        told = json.loads(line)
    except ValueError:
        return False
    if told.get("level") == "error" or "exception" in told:
        return False
    return known.fullmatch(str(told.get("message", ""))) is not None


def reasons(report: Mapping[str, Any], samples: Sequence[Mapping[str, float]], log: Iterable[str]) -> list[str]:
    """Return why a soak is not sound; nothing if it is."""
    found = []
    if (kept := report["kept_share"] or 0.0) < PACE:
        found.append(f"the load reached {kept:.1%} of its rate, less than {PACE:.0%}: the rest proves nothing")
    if (share := right_share(report)) < RIGHT_SHARE:
        found.append(f"{share:.4%} of ranks were answered right, less than {RIGHT_SHARE:.2%}")
    if failed := top_failures(report):
        found.append(f"{failed} reads of the top failed")
    found += grown(samples)
    found += [f"undocumented in the log: {line.strip()[:300]}" for line in undocumented(log)[:5]]
    return found
