"""A member that is not on the board, while no primary answers: 404 as before, and marked as any other stale answer."""

from __future__ import annotations

import contextlib
import json
import re
import time
from datetime import datetime

import pytest

from tests.servers import Gateway, RedisGroup, eventually

pytestmark = pytest.mark.xdist_group("failover")

BOARD = "/v1/leaderboards/s"
ABSENT = [f"{BOARD}/members/nobody", f"{BOARD}/members/nobody/neighbors"]
PRESENT = [f"{BOARD}/members/bob", f"{BOARD}/members/bob/neighbors"]
LIMITS = {"read_timeout_ms": 2000, "request_budget_ms": 5000, "max_lag_ms": 1000}


def absent(gateway: Gateway, path: str) -> dict[str, str]:
    """Return the header fields of an answer, which must be the right 404."""
    status, headers, body = gateway.get(path)
    assert (status, headers["content-type"]) == (404, "application/problem+json"), (status, body)
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (404, "member_not_found")
    assert headers["cache-control"] == "no-store"
    return headers


def is_marked(headers: dict[str, str]) -> bool:
    """Tell whether an answer is marked stale, which it is in both fields or in neither."""
    marks = {"leaderboard-stale" in headers, "cache-status" in headers}
    assert len(marks) == 1, headers
    return marks.pop()


def as_of(headers: dict[str, str]) -> float:
    return datetime.fromisoformat(headers["leaderboard-as-of"]).timestamp()


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def test_an_absence_is_marked_while_no_primary_answers_and_not_before_or_after(stack: contextlib.ExitStack) -> None:
    redis = stack.enter_context(RedisGroup(1))
    redis.write("ZADD", "s", 10, "ann", 20, "bob", 30, "cyd")
    settings = {"redis": {**redis.settings, **LIMITS}, "leaderboards": [{"name": "s", "key": "s", "grace_ms": 5000}]}
    gateway = stack.enter_context(Gateway(settings))
    for path in ABSENT:
        eventually(lambda at=path: not is_marked(absent(gateway, at)), what="an absence in step")  # type: ignore[misc]

    redis.primary.freeze()
    frozen = time.time()
    for path, present in zip(ABSENT, PRESENT, strict=True):
        eventually(lambda at=path: is_marked(absent(gateway, at)), what="the mark")  # type: ignore[misc]
        asked = time.time()
        headers = absent(gateway, path)
        answered = time.time()
        assert is_marked(headers), "and it stays"
        assert as_of(headers) <= frozen + 0.01, "as_of is the last instant known to be in step"
        since = as_of(headers) - 0.01, as_of(headers) + 0.01  # it is rounded to milliseconds
        assert int(asked - since[1]) <= int(headers["leaderboard-stale"]) <= answered - since[0]
        status, found, body = gateway.get(present)
        assert (status, json.loads(body)["stale"], is_marked(found)) == (200, True, True)
        assert without_numbers(headers["cache-status"]) == without_numbers(found["cache-status"])

    redis.primary.thaw()
    for path in ABSENT:
        eventually(lambda at=path: not is_marked(absent(gateway, at)), what="in step again")  # type: ignore[misc]
        assert as_of(absent(gateway, path)) > frozen
    gateway.stop()
