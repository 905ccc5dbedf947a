"""Profiles decorate rows: cached, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.errors import OriginTimeout, OriginUnavailable, Overloaded, WrongType
from gateway.layouts import profiles as module
from gateway.layouts.profiles import Profiles
from gateway.model import Entry, Stamp
from gateway.replicas.commands import Plain
from gateway.replicas.reads import ReplicaReads
from tests.fakes import FakeClock

KEY = b"lb:names"


class Reads:
    """Answers HMGET from a dict, or fails."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.error: Exception | None = None
        self.asked: list[tuple[bytes, ...]] = []
        self.within_s: list[float] = []

    async def read(self, request: Plain, *, lane: str, within_s: float) -> tuple[Any, Stamp, bool]:
        assert (request.name, request.key, lane) == (b"HMGET", KEY, "profiles")
        self.asked.append(request.args)
        self.within_s.append(within_s)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return [self.values.get(member) for member in request.args], Stamp(0.0, 0.0), False


class Rig:
    def __init__(self) -> None:
        self.clock, self.reads = FakeClock(), Reads()
        self.profiles = Profiles(cast("ReplicaReads", self.reads), clock=self.clock)

    async def shown(self, *members: bytes, within_s: float = 0.5) -> tuple[list[bytes | None], bool]:
        rows = [Entry(1, member, 1.0) for member in members]
        entries, missing = await self.profiles.beside(KEY, rows, self.clock.monotonic() + within_s)
        assert [entry.member for entry in entries] == list(members)
        return [entry.profile for entry in entries], missing


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_values_are_kept_for_ten_seconds_the_absent_and_the_too_large_included(rig: Rig) -> None:
    rig.reads.values = {b"a": b"Ann", b"b": b"x" * 1024, b"c": b"x" * 1025}
    expected = [b"Ann", b"x" * 1024, None, None]
    for _ in range(3):
        assert await rig.shown(b"a", b"b", b"c", b"d") == (expected, False)
    assert len(rig.reads.asked) == 1
    rig.clock.advance(10.1)
    await rig.shown(b"a")
    assert len(rig.reads.asked) == 2


async def test_only_what_is_not_known_is_asked_for(rig: Rig) -> None:
    await rig.shown(b"a", b"b")
    await rig.shown(b"a", b"c", b"b")
    assert rig.reads.asked == [(b"a", b"b"), (b"c",)]


@pytest.mark.parametrize("error", [OriginUnavailable(), OriginTimeout(), Overloaded()])
async def test_a_failure_leaves_the_rows_with_what_is_known_and_is_not_remembered(rig: Rig, error: Exception) -> None:
    rig.reads.values = {b"a": b"Ann", b"b": b"Bob"}
    await rig.shown(b"a")
    rig.reads.error = error
    assert await rig.shown(b"a", b"b") == ([b"Ann", None], True)
    rig.reads.error = None
    assert await rig.shown(b"a", b"b") == ([b"Ann", b"Bob"], False)


async def test_a_key_that_is_no_hash_means_no_profiles_and_nothing_missing(rig: Rig) -> None:
    rig.reads.error = WrongType()
    assert await rig.shown(b"a") == ([None], False)


async def test_profiles_may_take_a_quarter_of_an_attempt_and_never_more_than_what_is_left(rig: Rig) -> None:
    await rig.shown(b"a", within_s=0.5)
    await rig.shown(b"b", within_s=0.02)
    assert rig.reads.within_s == [pytest.approx(0.05), pytest.approx(0.02)]
    assert await rig.shown(b"c", within_s=0.0) == ([None], True)
    assert len(rig.reads.asked) == 2, "no time left: not even asked"


async def test_what_is_kept_is_bounded_in_bytes_and_entries(rig: Rig) -> None:
    for start in range(0, 40_000, 1000):
        await rig.shown(*[b"%d" % number for number in range(start, start + 1000)])
    kept = rig.profiles._kept
    assert len(kept) <= module.KEPT_BYTES // module.ENTRY_BYTES
    assert kept.currsize <= module.KEPT_BYTES
