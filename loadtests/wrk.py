"""wrk: one short run against one URL, and what it said.

Knows: wrk's command line, its output and its Lua hooks.
Must not know: what is measured, or what it is compared with.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.programs import program

THREADS, CONNECTIONS = 1, 64
PATHS = 20_000
"""How many random paths a run prepares: Lua's formatting per request would be a part of what is measured."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run of wrk reports. ``failed`` counts answers that are neither 2xx nor 3xx, and broken sockets."""

    per_second: float
    p50_ms: float
    p99_ms: float
    requests: int
    failed: int
    counted: int = 0
    """What somebody else counted meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """What one run asks for: one URL, or random members below one (``{}`` in the URL is replaced by a number)."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    members: int = 0
    """How many members the board has; 0: the URL is asked as it is."""
    connections: int = CONNECTIONS


def fire(shot: Shot, seconds: float, folder: Path) -> Reading:
    """Run wrk once; raise ``RuntimeError`` if it reports nothing."""
    # fmt: off
    command = [program("wrk"), f"-t{THREADS}", f"-c{shot.connections}", f"-d{max(1, round(seconds))}s", "--latency",
               "--timeout", "5s"]
    # fmt: on
    for name, value in shot.headers.items():
        command += ["-H", f"{name}: {value}"]
    if shot.members:
        script = folder / "random-members.lua"
        script.write_text(RANDOM_MEMBERS)
        command += ["-s", str(script), shot.url.split("{}", 1)[0], "--", shot.url, str(shot.members), str(PATHS)]
    else:
        command.append(shot.url)
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"wrk: {done.stderr.strip() or done.stdout.strip()}")
    return reading_of(done.stdout)


RANDOM_MEMBERS = """\
-- Prepares requests for random members, and sends one of them at random each time.
local requests = {}
function init(args)
  local path = args[1]:match("^%w+://[^/]+(.*)$")
  local members, count = tonumber(args[2]), tonumber(args[3])
  math.randomseed(20261130)
  for i = 1, count do
    requests[i] = wrk.format("GET", (path:gsub("{}", tostring(math.random(0, members - 1)), 1)))
  end
end
function request()
  return requests[math.random(#requests)]
end
"""

_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


def reading_of(output: str) -> Reading:
    """Read wrk's output with ``--latency``; raise ``RuntimeError`` if the rate is not in it."""
    rate = re.search(r"^Requests/sec:\s+([\d.]+)", output, re.MULTILINE)
    requests = re.search(r"^\s*(\d+) requests in ", output, re.MULTILINE)
    if rate is None or requests is None:
        raise RuntimeError(f"wrk reported no rate: {output[-300:]!r}")
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    failed = (int(wrong[1]) if wrong else 0) + (sum(map(int, broken.groups())) if broken else 0)
    return Reading(float(rate[1]), _share_ms(output, "50%"), _share_ms(output, "99%"), int(requests[1]), failed)


def _share_ms(output: str, share: str) -> float:
    found = re.search(rf"^\s*{re.escape(share)}\s+([\d.]+)(us|ms|s|m)\s*$", output, re.MULTILINE)
    return float(found[1]) * _UNIT_MS[found[2]] if found else float("nan")
