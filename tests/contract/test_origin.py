"""What every origin promises, held to an independent sort: the fake one, and sorted sets in Redis 7.0 and 6.2.

Under RESP2 and RESP3 alike: a server's answers must not depend on how they travel. And with an account that may do
what the README lists, and nothing else.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.errors import WrongType
from gateway.model import Entry, Order, Origin, Target, Ties
from gateway.replicas.login import Login
from tests.accounts import FIXED_ACCOUNT, PASSWORD, USER
from tests.fakes import FakeOrigin
from tests.reading import pairs, reading, target
from tests.servers import REDIS_6_2, REDIS_7_0, REDIS_8_2, Binary, RedisGroup

pytestmark = pytest.mark.xdist_group("origin")

ORDERS: tuple[Order, ...] = ("desc", "asc")
TIES: tuple[Ties, ...] = ("ordinal", "competition")


class World:
    """An origin, and the means to put boards under it."""

    def __init__(self, origin: Origin, group: RedisGroup | None) -> None:
        self.origin, self.group = origin, group

    def put(self, scores: Mapping[bytes, float], key: bytes = b"lb:s") -> None:
        """Make this, and nothing else, the board under a key."""
        if isinstance(self.origin, FakeOrigin):
            self.origin.boards[key] = dict(scores)
        else:
            assert self.group is not None
            self.group.call("DEL", key)
            self.group.write("ZADD", key, *pairs(dict(scores)))

    def put_profiles(self, key: bytes, profiles: Mapping[bytes, bytes]) -> None:
        """Put profiles under a key."""
        if isinstance(self.origin, FakeOrigin):
            self.origin.profiles[key] = dict(profiles)
        else:
            assert self.group is not None
            self.group.write("HSET", key, *[part for pair in profiles.items() for part in pair])

    def put_text(self, key: bytes) -> None:
        """Put something under a key that is no board."""
        if isinstance(self.origin, FakeOrigin):
            self.origin.wrong_types.add(key)
        else:
            assert self.group is not None
            self.group.write("SET", key, "x")


@pytest.fixture(scope="module")
def groups(module_stack: contextlib.ExitStack) -> Mapping[str, RedisGroup]:
    def group(binary: Binary) -> RedisGroup:
        return module_stack.enter_context(RedisGroup(1, binary=binary, acl=[FIXED_ACCOUNT]))

    return {binary: group(binary) for binary in (REDIS_7_0, REDIS_6_2, REDIS_8_2)}


@pytest.fixture(params=["fake", "7.0 RESP2", "7.0 RESP3", "6.2 RESP2", "6.2 RESP3", "8.2 RESP2", "8.2 RESP3"])
async def world(request: pytest.FixtureRequest, groups: Mapping[str, RedisGroup]) -> AsyncIterator[World]:
    kind: str = request.param
    if kind == "fake":
        yield World(FakeOrigin(), None)
        return
    binary, _, resp = kind.partition(" RESP")
    group = groups[binary]
    group.reset()
    ports = [node.port for node in group.nodes]
    login = Login(username=USER, password=PASSWORD, protocol=3 if resp == "3" else 2)
    async with reading(*ports, login=login, read_timeout_s=5.0, request_budget_s=15.0) as reads:
        yield World(reads.origin, group)


def sorted_rows(scores: Mapping[bytes, float], order: Order = "desc", ties: Ties = "ordinal") -> list[Entry]:
    """Sort and number a board the slow, obvious way."""
    rows = sorted(((score, member) for member, score in scores.items()), reverse=order == "desc")
    better = [sum(1 for other, _ in rows if (other > score if order == "desc" else other < score)) for score, _ in rows]
    ranks = range(len(rows)) if ties == "ordinal" else better
    return [Entry(rank + 1, member, score) for rank, (score, member) in zip(ranks, rows, strict=True)]


TEN = {b"m%d" % n: float(100 - n) for n in range(1, 11)}
TIED = {b"a": 9.0, b"b": 8.0, b"c": 8.0, b"d": 8.0, b"e": 8.0, b"f": 7.0, b"g": 6.0, b"h": 6.0, b"i": 1.0, b"j": 0.0}


async def test_ranks_are_one_based_and_windows_have_exactly_the_rows_asked_for(world: World) -> None:
    scores = {b"m%03d" % n: float(1000 - n) for n in range(1, 251)}
    world.put(scores)
    for limit in (1, 2, 100):
        window = await world.origin.window(target(), 1, limit)
        assert [entry.rank for entry in window.entries] == list(range(1, limit + 1))
        assert window.total == 250
    for rank in (1, 100, 101, 250):
        found = await world.origin.member(target(), b"m%03d" % rank)
        assert (found.total, list(found.entries)) == (250, [Entry(rank, b"m%03d" % rank, 1000.0 - rank)])


async def test_equal_scores_are_ordered_by_bytes_as_redis_does_both_ways(world: World) -> None:
    scores = {b"alice": 100.0, b"bob": 100.0, b"Carol": 100.0, b"dave": 90.0, "élan".encode(): 100.0}
    world.put(scores)
    down = [entry.member.decode() for entry in (await world.origin.window(target(), 1, 5)).entries]
    up = [entry.member.decode() for entry in (await world.origin.window(target(order="asc"), 1, 5)).entries]
    assert down == ["élan", "bob", "alice", "Carol", "dave"]
    assert up == down[::-1]
    for place, member in enumerate(down, 1):
        assert (await world.origin.member(target(), member.encode())).entries[0].rank == place


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ties", TIES)
async def test_every_route_gives_a_member_the_same_rank_on_every_page(world: World, order: Order, ties: Ties) -> None:
    world.put(TIED)
    board = target(order=order, ties=ties)
    rows = sorted_rows(TIED, order, ties)
    for first in (1, 2, 3, 4, 7, 10):  # pages that begin before, inside and behind a tie
        assert list((await world.origin.window(board, first, first + 2)).entries) == rows[first - 1 : first + 2]
    for place, row in enumerate(rows):
        assert list((await world.origin.member(board, row.member)).entries) == [row]
        around = await world.origin.neighbors(board, row.member, 1, 2)
        assert list(around.entries) == rows[max(0, place - 1) : place + 3]
    batch = await world.origin.members(board, sorted(TIED))
    assert list(batch.entries) == rows


async def test_competition_ranks_count_who_is_better(world: World) -> None:
    world.put(TIED)
    window = await world.origin.window(target(ties="competition"), 1, 10)
    assert [entry.rank for entry in window.entries] == [1, 2, 2, 2, 2, 6, 7, 7, 9, 10]


async def test_lap_times_rank_from_the_low_end_with_neighbors_on_both_sides(world: World) -> None:
    world.put({b"a": 71.2, b"b": 71.2, b"c": 70.9, b"d": 75.0})
    board = target(order="asc", ties="competition")
    assert [(row.member, row.rank) for row in (await world.origin.window(board, 1, 4)).entries] == [
        (b"c", 1),
        (b"a", 2),
        (b"b", 2),
        (b"d", 4),
    ]
    around = await world.origin.neighbors(board, b"b", 1, 1)
    assert [(row.member, row.rank) for row in around.entries] == [(b"a", 2), (b"b", 2), (b"d", 4)]


@pytest.mark.parametrize(("above", "below"), [(2, 2), (0, 0), (5, 1), (50, 50)])
async def test_neighbor_windows_hold_the_member_and_are_cut_at_the_ends_never_shifted(
    world: World, above: int, below: int
) -> None:
    world.put(TEN)
    for place in (1, 2, 5, 9, 10):
        around = await world.origin.neighbors(target(), b"m%d" % place, above, below)
        expected = list(range(max(1, place - above), min(10, place + below) + 1))
        assert [entry.rank for entry in around.entries] == expected
        assert [entry.member for entry in around.entries] == [b"m%d" % rank for rank in expected]
        assert around.total == 10


async def test_pages_forward_and_backward_are_the_same_and_empty_behind_the_end(world: World) -> None:
    scores = {b"m%02d" % n: float(-n) for n in range(41)}
    world.put(scores)
    spans = [(first, first + 19) for first in range(1, 101, 20)]
    forward = [await world.origin.window(target(), *span) for span in spans]
    backward = [await world.origin.window(target(), *span) for span in reversed(spans)]
    assert [len(page.entries) for page in forward] == [20, 20, 1, 0, 0]
    assert {page.total for page in forward} == {41}
    assert {row.member for page in forward for row in page.entries} == set(scores)
    assert [list(page.entries) for page in forward] == [list(page.entries) for page in reversed(backward)]


async def test_a_window_far_behind_any_end_is_empty_and_knows_the_total(world: World) -> None:
    world.put(TEN)
    window = await world.origin.window(target(ties="competition"), 2**53 - 100, 2**53 - 1)
    assert (window.total, list(window.entries)) == (10, [])


async def test_who_is_not_on_a_board_is_missing_and_the_total_says_that_the_board_lives(world: World) -> None:
    world.put(TEN)
    found = await world.origin.member(target(), b"nobody")
    assert (found.total, list(found.entries), list(found.missing)) == (10, [], [b"nobody"])
    around = await world.origin.neighbors(target(), b"nobody", 2, 2)
    assert (around.total, list(around.entries)) == (10, [])


async def test_a_board_that_does_not_exist_has_total_zero_on_every_route(world: World) -> None:
    ghost = target(b"lb:ghost")
    assert ((await world.origin.window(ghost, 1, 100)).total, (await world.origin.window(ghost, 1, 100)).entries) == (
        0,
        [],
    )
    found = await world.origin.member(ghost, b"ann")
    assert (found.total, list(found.missing)) == (0, [b"ann"])
    around = await world.origin.neighbors(ghost, b"ann", 2, 2)
    assert (around.total, list(around.entries)) == (0, [])
    batch = await world.origin.members(ghost, [b"ann", b"bob"])
    assert (batch.total, list(batch.entries), list(batch.missing)) == (0, [], [b"ann", b"bob"])


async def test_a_batch_is_sorted_by_rank_and_names_the_absent_in_the_order_asked(world: World) -> None:
    world.put(TIED)
    batch = await world.origin.members(target(), [b"zz", b"j", b"c", b"yy", b"a"])
    assert [(row.member, row.rank) for row in batch.entries] == [(b"a", 1), (b"c", 4), (b"j", 10)]
    assert list(batch.missing) == [b"zz", b"yy"]
    assert batch.total == 10


async def test_a_batch_of_a_hundred_is_one_answer(world: World) -> None:
    scores = {b"m%03d" % n: float(n) for n in range(150)}
    world.put(scores)
    batch = await world.origin.members(target(), [b"m%03d" % n for n in range(100, 200)])
    assert [row.member for row in batch.entries] == [b"m%03d" % n for n in range(149, 99, -1)]
    assert len(batch.missing) == 50


async def test_infinite_scores_are_numbers_with_ranks(world: World) -> None:
    world.put({b"top": math.inf, b"mid": 5.0, b"last": -math.inf})
    for ties in TIES:
        board = target(ties=ties)
        rows = [Entry(1, b"top", math.inf), Entry(2, b"mid", 5.0), Entry(3, b"last", -math.inf)]
        assert list((await world.origin.window(board, 1, 3)).entries) == rows
        assert list((await world.origin.neighbors(board, b"mid", 1, 1)).entries) == rows
        for row in rows:
            assert list((await world.origin.member(board, row.member)).entries) == [row]


async def test_scores_above_2_to_the_53_are_what_redis_holds_on_every_route(world: World) -> None:
    scores = {b"a": 9007199254740991.0, b"b": float(9007199254740993), b"c": 9007199254740992.0}
    world.put(scores)
    window = await world.origin.window(target(), 1, 3)
    assert [(row.member, int(row.score)) for row in window.entries] == [
        (b"c", 9007199254740992),
        (b"b", 9007199254740992),
        (b"a", 9007199254740991),
    ]
    assert (await world.origin.member(target(), b"b")).entries[0].score == 9007199254740992.0


async def test_members_may_be_any_bytes(world: World) -> None:
    scores = {b"\xff\x00\r\n": 3.0, b"": 2.0, "🏆 ä/%?#+:{}".encode(): 1.0, b"x" * 256: 0.0}
    world.put(scores)
    assert list((await world.origin.window(target(), 1, 10)).entries) == sorted_rows(scores)
    for row in sorted_rows(scores):
        assert list((await world.origin.member(target(), row.member)).entries) == [row]


async def test_a_key_of_another_type_is_a_wrong_type_on_every_route(world: World) -> None:
    world.put_text(b"lb:str")
    wrong = target(b"lb:str", ties="competition")
    for call in (
        world.origin.window(wrong, 1, 10),
        world.origin.member(wrong, b"a"),
        world.origin.neighbors(wrong, b"a", 1, 1),
        world.origin.members(wrong, [b"a"]),
    ):
        with pytest.raises(WrongType):
            await call
    world.put(TEN)
    assert (await world.origin.member(target(), b"m1")).entries, "a bad key is not an outage"


async def test_profiles_are_shown_on_every_route_and_too_large_or_absent_ones_are_none(world: World) -> None:
    world.put({b"a": 4.0, b"b": 3.0, b"c": 2.0, b"d": 1.0})
    world.put_profiles(b"names", {b"a": b"Ann", b"b": b'{"x":1}', b"c": b"x" * 1025, b"z": b"unused"})
    board = target(profiles_key=b"names")
    shown = {b"a": b"Ann", b"b": b'{"x":1}', b"c": None, b"d": None}
    window = await world.origin.window(board, 1, 100)
    assert {row.member: row.profile for row in window.entries} == shown
    assert not window.profiles_missing
    for member, profile in shown.items():
        assert (await world.origin.member(board, member)).entries[0].profile == profile
    batch = await world.origin.members(board, [b"d", b"a"])
    assert [row.profile for row in batch.entries] == [b"Ann", None]
    around = await world.origin.neighbors(board, b"b", 1, 0)
    assert [row.profile for row in around.entries] == [b"Ann", b'{"x":1}']


async def test_stamps_are_not_stale_and_begin_no_earlier_than_the_call(world: World) -> None:
    world.put(TEN)
    earlier = await world.origin.member(target(), b"m1")
    later = await world.origin.window(target(), 1, 1)
    assert not earlier.stamp.stale
    assert earlier.stamp.began <= later.stamp.began
    assert earlier.stamp.as_of <= later.stamp.as_of


SCORES = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False),
    st.sampled_from([0.1 + 0.2, 1e300, 5e-324, 2.0**53, -0.0]),
)
BOARDS = st.dictionaries(st.binary(max_size=8), SCORES, min_size=1, max_size=25)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@example(scores={b"a": 0.0, b"b": -0.0}, first=1, above=1, below=1)
@given(scores=BOARDS, first=st.integers(1, 30), above=st.integers(0, 6), below=st.integers(0, 6))
async def test_any_board_reads_like_its_sort(
    world: World, scores: dict[bytes, float], first: int, above: int, below: int
) -> None:
    world.put(scores)
    for order in ORDERS:
        for ties in TIES:
            board = target(order=order, ties=ties)
            await _reads_like(world.origin, board, sorted_rows(scores, order, ties), (first, above, below))


async def _reads_like(origin: Origin, board: Target, rows: list[Entry], numbers: tuple[int, int, int]) -> None:
    first, above, below = numbers
    assert _plain((await origin.window(board, first, first + 9)).entries) == _plain(rows[first - 1 : first + 9])
    place = first % len(rows)
    member = rows[place].member
    assert _plain((await origin.member(board, member)).entries) == _plain([rows[place]])
    around = await origin.neighbors(board, member, above, below)
    assert _plain(around.entries) == _plain(rows[max(0, place - above) : place + below + 1])
    batch = await origin.members(board, [row.member for row in reversed(rows)])
    assert _plain(batch.entries) == _plain(rows)


def _plain(entries: Any) -> list[tuple[int, bytes, float]]:
    """Make minus zero equal to zero, as it is in Redis's order."""
    return [(entry.rank, entry.member, entry.score + 0.0) for entry in entries]
