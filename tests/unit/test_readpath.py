"""ReadPath: the promises of snapshots and coalescing, on a fake clock and a fake origin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.encode import Rendering
from gateway.errors import (
    GatewayError,
    MemberNotFound,
    OriginError,
    OriginTimeout,
    OriginUnavailable,
    Overloaded,
    PeriodNotFound,
    WrongType,
)
from gateway.loader import OriginLoader
from gateway.model import Board, Kind, Query, SnapshotKey, Target
from gateway.periods import Period
from gateway.readpath import Limits, ReadPath, Reply
from gateway.store import Store
from tests.fakes import FakeClock, FakeOrigin, settle

BOARD = Board(name="s", key="lb:s", ttl_s=1.0, grace_s=1.0)
TARGET = Target(BOARD, "s", b"lb:s")
TOP = Query("top", TARGET)


class World:
    """A read path over fakes, and what it was asked."""

    def __init__(self, **limits: Any) -> None:
        self.clock = FakeClock()
        self.origin = FakeOrigin(self.clock)
        self.origin.put(b"lb:s", {f"m{n}": 1000 - n for n in range(250)})
        self.readpath = ReadPath(
            origin=self.origin,
            loader=OriginLoader(self.origin, self.clock),
            store=Store(),
            clock=self.clock,
            random=lambda: 0.0,
            # Real time plays no part unless a test says so: the loop may be slow.
            limits=Limits(**{"request_budget_s": 3600.0} | limits),
            bound_s=lambda _: 26.7,
        )

    async def read(self, query: Query = TOP) -> Reply:
        return await self.readpath.read(query)

    def start(self, query: Query = TOP) -> asyncio.Task[Reply]:
        return asyncio.create_task(self.read(query))


@pytest.fixture
def world() -> World:
    return World()


def body(reply: Reply) -> Any:
    return json.loads(reply.body.form("identity") if isinstance(reply.body, Rendering) else reply.body)


def member(name: str, kind: Kind = "member", **fields: Any) -> Query:
    return Query(kind, TARGET, members=tuple(part.encode() for part in name.split(",")), **fields)


def variant(**fields: Any) -> Query:
    return Query("top", replace(TARGET, board=replace(BOARD, **fields)))


async def test_ten_thousand_cold_callers_are_one_read(world: World) -> None:
    gate = world.origin.hold()
    callers = [world.start() for _ in range(10_000)]
    await settle()
    gate.set()
    replies = await asyncio.gather(*callers)
    assert world.origin.calls["window"] == 1
    assert sorted(reply.outcome for reply in replies) == ["joined"] * 9_999 + ["miss"]
    assert len({id(reply.body) for reply in replies}) == 1


async def test_the_first_callers_leaving_changes_nothing_for_the_others(world: World) -> None:
    gate = world.origin.hold()
    callers = [world.start() for _ in range(50)]
    await settle()
    callers[0].cancel()
    await settle()
    gate.set()
    replies = await asyncio.gather(*callers[1:])
    assert all(len(body(reply)["entries"]) == 100 for reply in replies)
    assert world.origin.calls["window"] == 1
    assert (await world.read()).outcome == "hit"


async def test_the_snapshot_is_stored_though_every_caller_left(world: World) -> None:
    gate = world.origin.hold()
    callers = [world.start() for _ in range(5)]
    await settle()
    for caller in callers:
        caller.cancel()
    await settle()
    gate.set()
    await settle()
    assert (await world.read()).outcome == "hit"
    assert world.origin.calls["window"] == 1


async def test_a_fresh_snapshot_is_served_without_a_read(world: World) -> None:
    first = await world.read()
    world.clock.advance(1.0)
    second = await world.read()
    assert (first.outcome, second.outcome) == ("miss", "hit")
    assert world.origin.calls["window"] == 1
    assert second.fresh_until == 0.0 or second.fresh_until <= world.clock.monotonic() + 1.0


async def test_in_grace_nobody_waits_and_one_refresh_runs(world: World) -> None:
    await world.read()
    world.clock.advance(1.5)
    gate = world.origin.hold()
    replies = [await world.read() for _ in range(100)]
    assert {reply.outcome for reply in replies} == {"hit"}
    await settle()
    assert world.origin.calls["window"] == 2
    gate.set()
    await settle()
    assert (await world.read()).fresh_until == pytest.approx(world.clock.monotonic() + 1.0)


async def test_c15_five_hundred_reads_a_second_cost_one_read_of_redis_a_ttl(world: World) -> None:
    for _ in range(5_000):
        world.clock.advance(0.002)
        await world.read()
        await settle(2)
    assert 9 <= world.origin.calls["window"] <= 11


async def test_an_old_snapshot_alone_is_no_outage(world: World) -> None:
    await world.read()
    world.clock.advance(3600)
    reply = await world.read()
    assert (reply.outcome, reply.stale) == ("miss", False)
    assert world.origin.calls["window"] == 2


async def test_a_snapshots_age_counts_from_when_its_read_began(world: World) -> None:
    world.origin.delay_s = 0.4
    caller = world.start()
    await settle()
    world.clock.advance(0.4)
    reply = await caller
    assert reply.fresh_until == pytest.approx(world.clock.monotonic() + 0.6)


async def test_one_snapshot_serves_every_limit_and_every_range_inside_it(world: World) -> None:
    await world.read()
    for last in (1, 2, 99, 100):
        reply = await world.read(TOP._replace(last=last))
        assert [entry["rank"] for entry in body(reply)["entries"]] == list(range(1, last + 1))
    inside = await world.read(Query("ranks", TARGET, first=20, last=30))
    assert [entry["rank"] for entry in body(inside)["entries"]] == list(range(20, 31))
    assert world.origin.calls["window"] == 1


async def test_c8_a_board_that_does_not_exist_is_remembered_like_any_other(world: World) -> None:
    ghost = Query("top", replace(TARGET, leaderboard="ghost", key=b"lb:ghost"))
    replies = [await world.read(ghost._replace(last=number % 100 + 1)) for number in range(1000)]
    assert {body(reply)["total"] for reply in replies} == {0}
    assert world.origin.calls["window"] == 1


async def test_a_range_outside_the_top_has_a_snapshot_of_its_own(world: World) -> None:
    query = Query("ranks", TARGET, first=101, last=200)
    replies = [await world.read(query) for _ in range(3)]
    assert [reply.outcome for reply in replies] == ["miss", "hit", "hit"]
    assert [entry["rank"] for entry in body(replies[0])["entries"]] == list(range(101, 201))
    past = await world.read(Query("ranks", TARGET, first=1001, last=1100))
    assert (body(past)["entries"], body(past)["total"]) == ([], 250)


async def test_an_unchanged_board_keeps_its_body_and_etag_and_tells_when_it_was_last_read(world: World) -> None:
    first = await world.read()
    world.clock.advance(10)
    second = await world.read()
    assert second.body is first.body
    assert second.as_of == first.as_of + 10
    world.origin.put(b"lb:s", {"new": 9999})
    world.clock.advance(10)
    third = await world.read()
    assert isinstance(first.body, Rendering)
    assert isinstance(third.body, Rendering)
    assert third.body.etag != first.body.etag


async def test_parts_of_an_unchanged_board_are_compressed_a_few_times_for_each_read(world: World) -> None:
    for _ in range(2):
        offered = []
        for limit in range(1, 100):
            part = (await world.read(TOP._replace(last=limit))).body
            assert isinstance(part, Rendering)
            offered.append(part.offer("br"))
            part.form(offered[-1])
        assert 0 < offered.count("br") <= 16
        world.clock.advance(10)


async def test_a_failed_load_without_a_snapshot_is_one_error_for_all(world: World) -> None:
    gate = world.origin.hold()
    world.origin.fail()
    callers = [world.start() for _ in range(100)]
    await settle()
    gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(result, OriginUnavailable) for result in results)
    assert world.origin.calls["window"] == 1


async def test_a_failed_load_is_not_remembered_as_the_answer(world: World) -> None:
    world.origin.fail(times=1)
    with pytest.raises(OriginUnavailable):
        await world.read()
    with pytest.raises(OriginUnavailable):
        await world.read()
    assert world.origin.calls["window"] == 1
    world.clock.advance(0.26)
    assert (await world.read()).outcome == "miss"


async def test_a_failed_load_with_a_snapshot_is_the_last_known_board_marked(world: World) -> None:
    fresh = await world.read()
    world.clock.advance(60)
    world.origin.fail()
    stale = await world.read()
    assert (stale.outcome, stale.stale, stale.as_of) == ("stale", True, fresh.as_of)
    assert stale.age_s == pytest.approx(60)
    assert body(stale) == body(fresh) | {"stale": True}
    world.origin.heal()
    world.clock.advance(0.3)
    assert (await world.read()).outcome == "stale"
    await settle()
    assert (await world.read()).outcome == "hit"


async def test_after_the_first_failure_no_caller_waits_and_loads_are_held_back(world: World) -> None:
    await world.read()
    world.clock.advance(60)
    world.origin.fail()
    await world.read()
    world.origin.hold()
    attempts = world.origin.calls["window"]
    for _ in range(100):
        assert (await world.read()).outcome == "stale"
    assert world.origin.calls["window"] == attempts
    world.clock.advance(0.3)
    for _ in range(100):
        assert (await world.read()).outcome == "stale"
    await settle()
    assert world.origin.calls["window"] == attempts + 1


async def test_in_a_long_outage_there_is_one_attempt_a_second(world: World) -> None:
    await world.read()
    world.origin.fail()
    before = world.origin.calls["window"]
    for _ in range(600):
        world.clock.advance(0.1)
        await world.read()
        await settle(4)
    assert 55 <= world.origin.calls["window"] - before <= 65


async def test_a_load_that_outlasts_its_deadline_gives_the_old_snapshot_marked(world: World) -> None:
    await world.read()
    world.readpath.flights._deadline_s = 0
    world.clock.advance(60)
    world.origin.hold()
    assert (await world.read()).outcome == "stale"


async def test_a_hanging_load_ends_at_its_own_deadline_and_counts_as_a_failure() -> None:
    world = World()
    world.readpath.flights._deadline_s = 0
    world.origin.hold()
    with pytest.raises(OriginUnavailable):
        await world.read()
    await settle()
    assert len(world.readpath.flights) == 0
    with pytest.raises(OriginUnavailable):
        await world.read()
    assert world.origin.calls["window"] == 1


async def test_a_cold_load_that_times_out_is_unavailable_not_a_time_out_of_this_request(world: World) -> None:
    world.origin.fail(OriginTimeout(), times=1)
    with pytest.raises(OriginUnavailable):
        await world.read()


async def test_the_last_known_board_is_given_up_at_its_keep_limit() -> None:
    world = World(keep_s=100.0)
    await world.read()
    world.origin.fail()
    world.clock.advance(99)
    assert (await world.read()).stale
    world.clock.advance(2)
    with pytest.raises(OriginUnavailable):
        await world.read()


async def test_ttl_zero_shares_flights_and_stores_nothing(world: World) -> None:
    query = variant(ttl_s=0.0, grace_s=0.0)
    gate = world.origin.hold()
    callers = [world.start(query) for _ in range(100)]
    await settle()
    gate.set()
    await asyncio.gather(*callers)
    assert world.origin.calls["window"] == 1
    world.origin.put(b"lb:s", {"new": 9999})
    reply = await world.read(query)
    assert body(reply)["entries"][0]["member"] == "new"
    assert (reply.outcome, reply.fresh_until, reply.stored) == ("miss", 0.0, False)
    world.origin.fail()
    assert (await world.read(query)).stale


async def test_moving_the_wall_clock_changes_no_age(world: World) -> None:
    await world.read()
    for jump in (3600, -7200):
        world.clock.move_wall(jump)
        assert (await world.read()).outcome == "hit"
    world.origin.fail()
    world.clock.advance(60)
    assert (await world.read()).age_s == pytest.approx(60)


async def test_a_deleted_board_is_empty_and_an_unconfirmed_absence_replaces_nothing(world: World) -> None:
    await world.read()
    world.clock.advance(10)
    world.origin.remove(b"lb:s")
    world.origin.absence_unknown = True
    assert len(body(await world.read())["entries"]) == 100
    world.origin.absence_unknown = False
    world.clock.advance(10)
    await world.read()
    await settle()
    assert (body(await world.read())["total"], body(await world.read())["entries"]) == (0, [])
    world.origin.fail()
    world.clock.advance(10)
    assert body(await world.read())["total"] == 0


async def test_a_wrong_type_is_its_own_error_neither_stale_nor_retried_at_once(world: World) -> None:
    await world.read()
    world.clock.advance(10)
    world.origin.wrong_types.add(b"lb:s")
    for _ in range(5):
        with pytest.raises(WrongType):
            await world.read()
    assert world.origin.calls["window"] == 2
    world.origin.wrong_types.clear()
    world.clock.advance(0.3)
    with pytest.raises(WrongType):
        await world.read()
    await settle()
    assert (await world.read()).outcome == "hit"


async def test_an_unforeseen_error_serves_the_last_known_board_and_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.read()
    world.clock.advance(10)
    world.origin.fail(RuntimeError("a fault of ours"))
    assert (await world.read()).stale
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_an_unforeseen_error_without_a_snapshot_goes_up(world: World) -> None:
    world.origin.fail(RuntimeError("a fault of ours"))
    with pytest.raises(RuntimeError):
        await world.read()
    with pytest.raises(GatewayError):
        await world.read()


async def test_waiters_of_a_cold_board_are_bounded() -> None:
    world = World(max_waiters=10)
    gate = world.origin.hold()
    callers = []
    for _ in range(12):
        callers.append(world.start())
        await settle(2)
    gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert sum(isinstance(result, Overloaded) for result in results) == 2


async def test_who_finds_too_many_waiting_for_a_board_that_is_known_gets_the_last_known_one() -> None:
    world = World(max_waiters=10)
    known = await world.read()
    world.clock.advance(60)
    gate = world.origin.hold()
    callers = []
    for _ in range(12):
        callers.append(world.start())
        await settle(2)
    gate.set()
    replies = await asyncio.gather(*callers)
    assert sorted(reply.outcome for reply in replies) == ["joined"] * 9 + ["miss"] + ["stale"] * 2
    assert {reply.as_of for reply in replies if reply.stale} == {known.as_of}


async def test_reads_from_a_node_out_of_step_are_marked_with_the_last_instant_in_step(world: World) -> None:
    world.origin.stale_since = world.clock.wall() - 30
    reply = await world.read()
    assert (reply.outcome, reply.stale, reply.as_of) == ("stale", True, world.clock.wall() - 30)
    assert reply.age_s == pytest.approx(30)
    world.clock.advance(0.5)
    again = await world.read()
    assert again.age_s == pytest.approx(30.5)
    assert world.origin.calls["window"] == 1


async def test_a_lagging_node_never_takes_a_board_back_in_time(world: World) -> None:
    world.origin.put(b"lb:s", {"new": 9999})
    newest = await world.read()
    world.origin.remove(b"lb:s", b"new")
    world.clock.advance(10)
    world.origin.stale_since = newest.as_of - 5
    lagging = await world.read()
    assert lagging.stale
    assert lagging.as_of == newest.as_of
    assert body(lagging)["entries"][0]["member"] == "new"
    assert lagging.age_s == pytest.approx(10)


async def test_a_wall_clock_set_back_does_not_make_a_read_out_of_step_look_older_than_it_is(world: World) -> None:
    await world.read()
    world.clock.advance(10)
    world.clock.move_wall(-3600)
    world.origin.put(b"lb:s", {"new": 9999})
    world.origin.stale_since = world.clock.wall() - 3
    reply = await world.read()
    assert reply.stale
    assert body(reply)["entries"][0]["member"] == "new"
    assert reply.age_s == pytest.approx(3)


async def test_a_stale_reply_may_be_repeated_until_its_whole_seconds_change(world: World) -> None:
    world.origin.stale_since = world.clock.wall() - 30.25
    reply = await world.read()
    assert reply.fresh_until == pytest.approx(world.clock.monotonic() + 0.75)


async def test_rows_without_their_profiles_are_kept_a_second_at_most(world: World) -> None:
    target = replace(TARGET, board=replace(BOARD, ttl_s=60.0), profiles_key=b"names")
    world.origin.profiles_fail = True
    query = Query("top", target)
    await world.read(query)
    world.origin.profiles_fail = False
    world.origin.profiles[b"names"] = {b"m0": b"Ann"}
    world.clock.advance(1.01)
    assert body(await world.read(query))["entries"][0]["profile"] == "Ann"


async def test_after_a_failed_refresh_an_unmarked_answer_is_not_given_again_past_grace(world: World) -> None:
    """The hold after a failure may last longer than what is left of grace; past it every answer is marked."""
    await world.read()
    world.origin.fail()
    world.clock.advance(1.95)
    assert not (await world.read()).stale
    await settle()
    held = await world.read()
    assert not held.stale
    assert held.fresh_until == pytest.approx(world.clock.monotonic() + 0.05)
    world.clock.advance(0.06)
    assert (await world.read()).stale


async def test_who_can_be_served_something_older_waits_no_longer_than_the_budget() -> None:
    """Whatever holds the load up, its turn in the queue included; who has nothing goes on waiting."""
    world = World(request_budget_s=0.0)
    await world.read()
    world.clock.advance(60)
    gate = world.origin.hold()
    reply = await world.read()
    assert (reply.outcome, reply.stale) == ("stale", True)
    assert reply.age_s == pytest.approx(60)
    other = world.start(Query("ranks", TARGET, 101, 120))
    await settle()
    assert not other.done()
    gate.set()
    assert (await other).outcome == "miss"
    await settle()
    assert (await world.read()).outcome == "hit"


async def test_who_can_only_be_served_what_is_too_old_waits_for_the_load() -> None:
    world = World(request_budget_s=0.0, keep_s=30.0)
    await world.read()
    world.clock.advance(60)
    gate = world.origin.hold()
    caller = world.start()
    await settle()
    assert not caller.done()
    gate.set()
    assert (await caller).outcome == "miss"


async def test_rows_without_their_profiles_say_so(world: World) -> None:
    query = Query("top", replace(TARGET, profiles_key=b"p"))
    world.origin.profiles_fail = True
    assert (await world.read(query)).short_lived
    world.origin.profiles_fail = False
    world.clock.advance(1.1)
    assert not (await world.read(query)).short_lived


async def test_the_boards_own_answer_is_made_once_for_all_callers(world: World) -> None:
    replies = await asyncio.gather(*(world.read(Query("board", TARGET)) for _ in range(20)))
    world.clock.advance(1.5)
    replies.append(await world.read(Query("board", TARGET)))
    assert len({id(reply.body) for reply in replies}) == 1


# --- members ----------------------------------------------------------------------------------------------------------


async def test_member_reads_are_never_cached(world: World) -> None:
    assert body(await world.read(member("m4")))["rank"] == 5
    world.origin.put(b"lb:s", {"m4": 5000})
    reply = await world.read(member("m4"))
    assert (body(reply)["rank"], reply.outcome, reply.fresh_until) == (1, "miss", 0.0)


@pytest.mark.parametrize("kind", ["member", "neighbors"])
async def test_an_absent_member_is_an_error_of_its_own(world: World, kind: Kind) -> None:
    with pytest.raises(MemberNotFound) as found:
        await world.read(member("nobody", kind))
    assert (found.value.as_of, found.value.stale_age_s) == (world.clock.wall(), None)
    world.origin.remove(b"lb:s")
    with pytest.raises(MemberNotFound):
        await world.read(member("m1", kind))


async def test_a_batch_tells_who_is_missing(world: World) -> None:
    answer = body(await world.read(member("m9,nobody,m2", "members")))
    assert [entry["rank"] for entry in answer["entries"]] == [3, 10]
    assert answer["missing"] == ["nobody"]


async def test_member_reads_from_a_node_out_of_step_are_marked(world: World) -> None:
    world.origin.stale_since = world.clock.wall() - 7
    for query in (member("m1"), member("m1", "neighbors"), member("m1", "members")):
        reply = await world.read(query)
        assert (reply.outcome, reply.stale, body(reply)["stale"]) == ("stale", True, True)
        assert reply.age_s == pytest.approx(7)
    for kind in ("member", "neighbors"):
        with pytest.raises(MemberNotFound) as found:
            await world.read(Query(kind, TARGET, members=(b"nobody",)))
        assert found.value.stale_age_s == pytest.approx(7)


@pytest.mark.parametrize(
    ("query", "ranks"),
    [
        (member("m0"), [1]),
        (member("m99"), [100]),
        (member("m1", "neighbors", above=3, below=2), [1, 2, 3, 4]),
        (member("m97", "neighbors", above=1, below=2), [97, 98, 99, 100]),
        (member("m50,m3", "members"), [4, 51]),
    ],
)
async def test_in_an_outage_members_inside_the_last_known_top_are_answered(
    world: World, query: Query, ranks: list[int]
) -> None:
    top = await world.read()
    world.origin.fail()
    world.clock.advance(5)
    reply = await world.read(query)
    answer = body(reply)
    assert [entry["rank"] for entry in answer.get("entries", [answer])] == ranks
    assert (answer["stale"], reply.stale, reply.outcome, reply.as_of) == (True, True, "stale", top.as_of)
    assert reply.age_s == pytest.approx(5)


@pytest.mark.parametrize(
    "query",
    [
        member("m100"),
        member("nobody"),
        member("m98", "neighbors", above=0, below=2),
        member("m3,m200", "members"),
    ],
)
@pytest.mark.parametrize("error", [OriginTimeout(), Overloaded()])
async def test_in_an_outage_members_not_wholly_inside_it_are_the_origins_error(
    world: World, query: Query, error: OriginError
) -> None:
    await world.read()
    world.origin.fail(error)
    with pytest.raises(type(error)):
        await world.read(query)


async def test_a_member_inside_the_last_known_top_is_answered_though_too_many_reads_are_waiting(world: World) -> None:
    await world.read()
    world.origin.fail(Overloaded())
    reply = await world.read(member("m50"))
    assert (body(reply)["rank"], reply.stale) == (51, True)


@pytest.mark.parametrize("stored", [b"\xff", rb"\xff"])
async def test_in_an_outage_an_id_that_may_be_another_members_text_is_not_answered(world: World, stored: bytes) -> None:
    r"""A byte that is not UTF-8 is shown as ``\xNN``, which may be another member's own four characters."""
    world.origin.boards[b"lb:s"][stored] = 5000.0
    await world.read()
    world.origin.fail()
    with pytest.raises(OriginUnavailable):
        await world.read(Query("member", TARGET, members=(rb"\xff",)))
    assert body(await world.read(member("m1")))["rank"] == 3


async def test_in_an_outage_the_end_of_a_small_board_is_a_known_end(world: World) -> None:
    world.origin.remove(b"lb:s", *(f"m{n}".encode() for n in range(10, 250)))
    await world.read()
    world.origin.fail()
    answer = body(await world.read(member("m9", "neighbors", above=2, below=5)))
    assert [entry["rank"] for entry in answer["entries"]] == [8, 9, 10]


async def test_a_board_read_from_the_primary_answers_no_member_from_what_is_last_known(world: World) -> None:
    exact = replace(TARGET, board=replace(BOARD, read_from="primary", ttl_s=0.0, grace_s=0.0))
    await world.read(Query("top", exact))
    world.origin.fail()
    assert (await world.read(Query("top", exact))).stale
    with pytest.raises(OriginUnavailable):
        await world.read(Query("member", exact, members=(b"m1",)))


# --- periods ----------------------------------------------------------------------------------------------------------


def in_period(world: World, start: float, end: float, kind: Kind = "top", **fields: Any) -> Query:
    now = world.clock.wall()
    period = Period("weekly", "2023-W46", now + start, now + end, "2023-W46", "2023-W45")
    return Query(kind, Target(BOARD, "s", b"lb:s:2023-W46", period=period), **fields)


async def test_a_running_period_without_a_key_is_an_empty_board(world: World) -> None:
    assert body(await world.read(in_period(world, -5, 5)))["total"] == 0


@pytest.mark.parametrize(("start", "end"), [(-20, -10), (10, 20)])
async def test_another_period_without_a_key_is_not_found(world: World, start: float, end: float) -> None:
    for _ in range(2):
        with pytest.raises(PeriodNotFound):
            await world.read(in_period(world, start, end))
    for kind in ("member", "neighbors", "members"):
        with pytest.raises(PeriodNotFound):
            await world.read(in_period(world, start, end, kind, members=(b"m1",)))


async def test_in_an_outage_nobody_is_told_that_nothing_is_kept_of_a_period(world: World) -> None:
    query = in_period(world, -20, -10)
    with pytest.raises(PeriodNotFound):
        await world.read(query)
    world.origin.fail()
    world.clock.advance(5)
    for _ in range(3):
        with pytest.raises(OriginUnavailable):
            await world.read(query)


async def test_members_of_an_archived_period_are_answered_from_its_archive(world: World) -> None:
    class Archive:
        async def load(self, target: Target, key: SnapshotKey) -> Any:
            return await OriginLoader(world.origin, world.clock).load(TARGET, key)

    world.readpath._loader = Archive()
    reply = await world.read(in_period(world, -20, -10, "member", members=(b"m3",)))
    assert (body(reply)["rank"], reply.stale) == (4, False)
    with pytest.raises(PeriodNotFound):
        await world.read(in_period(world, -20, -10, "member", members=(b"m200",)))


async def test_a_period_is_final_for_those_who_read_it_when_no_node_in_step_could_lack_a_score() -> None:
    """Not by when it is sent: what was read before lacks what came in since."""
    world = World(max_lag_s=2.0)
    world.origin.put(b"lb:s:2023-W46", {"ann": 1})
    world.clock.advance(100)
    query = in_period(world, -700, BOARD.settle_s * -1 + 1)  # final in a second
    assert not (await world.read(query)).final
    world.clock.advance(1.0)
    assert not (await world.read(query)).final, "read before"
    world.clock.advance(1.5)
    await world.read(query)
    await settle()
    assert not (await world.read(query)).final, "read from a node that may have been two seconds behind"
    world.clock.advance(2.5)
    assert (await world.read(query)).final
    assert not (await world.read()).final


# --- the instance -----------------------------------------------------------------------------------------------------


async def test_readiness_counts_what_could_be_answered(world: World) -> None:
    other = Target(Board(name="o", key="lb:o"), "o", b"lb:o")
    targets = [TARGET, other]
    assert world.readpath.readiness(targets, redis_up=False) == (False, False, 0, 0, 2)
    assert await world.readpath.warm(TARGET)
    world.origin.wrong_types.add(b"lb:o")
    assert await world.readpath.warm(other)
    assert world.readpath.readiness(targets, redis_up=True) == (True, True, 1, 0, 1)
    world.clock.advance(60)
    world.origin.fail()
    assert not await world.readpath.warm(TARGET)
    assert world.readpath.readiness(targets, redis_up=False) == (True, False, 0, 1, 1)


async def test_a_restored_snapshot_is_last_known_until_a_load_succeeds(world: World) -> None:
    donor = World()
    await donor.read()
    slot = donor.readpath.store.get(TOP.snapshot_key)
    assert slot is not None
    assert slot.snapshot is not None
    slot.snapshot.began = world.clock.monotonic() - 600
    world.readpath.adopt(TARGET, slot.snapshot, restored=True)
    assert world.readpath.readiness([TARGET], redis_up=False) == (True, False, 0, 1, 0)
    world.origin.fail()
    assert (await world.read()).stale
    world.origin.heal()
    world.clock.advance(1)
    await world.read()
    await settle()
    assert world.readpath.readiness([TARGET], redis_up=True).fresh == 1


async def test_a_restored_snapshot_never_replaces_what_was_loaded(world: World) -> None:
    loaded = await world.read()
    donor = World()
    donor.origin.put(b"lb:s", {"older": 99999})
    await donor.read()
    slot = donor.readpath.store.get(TOP.snapshot_key)
    assert slot is not None
    assert slot.snapshot is not None
    world.readpath.adopt(TARGET, slot.snapshot, restored=True)
    assert (await world.read()).body is loaded.body


@pytest.mark.parametrize("make", [lambda: TOP, lambda: Query("ranks", TARGET, 5, 9), lambda: Query("board", TARGET)])
async def test_every_cached_kind_lives_in_the_one_snapshot(world: World, make: Callable[[], Query]) -> None:
    await world.read()
    reply = await world.read(make())
    assert reply.outcome == "hit"
    assert world.origin.calls["window"] == 1
