"""The hot path: the very same answer again, no longer than it holds, bounded whatever clients invent."""

from __future__ import annotations

from gateway.encode import Allowance, Rendering
from gateway.http.hot import Codings, Representation
from gateway.model import Board
from gateway.periods import calendar_for
from gateway.readpath import Reply
from tests.unit.http.driver import BODY, Site

TOP = "/v1/leaderboards/downloads/top"


async def test_a_hit_is_given_again_without_asking_until_its_instant_has_passed() -> None:
    site = Site()
    first = await site.get(TOP)
    for _ in range(5):
        assert (await site.get(TOP)).fields == first.fields
    site.clock.advance(1.0)
    assert (await site.get(TOP)).fields == first.fields
    assert len(site.reads.queries) == 1
    site.clock.advance(0.001)
    again = await site.get(TOP)
    assert len(site.reads.queries) == 2
    assert again["leaderboard-as-of"] == "2023-11-14T22:13:21.001Z"


async def test_what_was_read_just_now_is_a_miss_once_and_then_a_hit() -> None:
    site = Site()
    for outcome in ("miss", "joined"):
        site.reads.reply = Reply(outcome, BODY, 0.0, stale=False, fresh_until=site.clock.monotonic() + 1)
        for _ in range(2):
            assert "hit" not in (await site.get(TOP))["cache-status"]
    assert len(site.reads.queries) == 4


async def test_a_reply_that_may_not_be_repeated_is_not() -> None:
    site = Site()
    site.reads.reply = Reply("hit", BODY, 0.0, stale=False)
    for _ in range(3):
        await site.get(TOP)
    assert len(site.reads.queries) == 3


async def test_a_stale_reply_is_repeated_while_its_age_reads_the_same() -> None:
    site = Site()
    now = site.clock.monotonic()
    site.reads.reply = Reply("stale", BODY, 0.0, stale=True, fresh_until=now + 0.5, age_s=60.5)
    for _ in range(3):
        assert (await site.get(TOP))["leaderboard-stale"] == "60"
    assert len(site.reads.queries) == 1
    site.clock.advance(0.6)
    site.reads.reply = Reply("stale", BODY, 0.0, stale=True, fresh_until=now + 1, age_s=61.1)
    assert (await site.get(TOP))["leaderboard-stale"] == "61"
    assert site.count("gateway_reads_total", "top", "stale") == 4


async def test_other_queries_and_paths_are_other_answers() -> None:
    site = Site()
    for target in (TOP, f"{TOP}?limit=5", f"{TOP}?limit=05", "/v1/leaderboards/d%6Fwnloads/top"):
        for _ in range(3):
            assert (await site.get(target)).status == 200
    assert [query.last for query in site.reads.queries] == [100, 5, 5, 100]


async def test_conditions_and_codings_are_answered_from_what_was_prepared() -> None:
    site = Site()
    etag = (await site.get(TOP))["etag"]
    assert (await site.get(TOP, [("If-None-Match", etag)])).status == 304
    assert (await site.get(TOP, [("If-None-Match", '"x"')])).status == 200
    assert (await site.get(TOP, [("Accept-Encoding", "br;q=0.1"), ("Accept-Encoding", "gzip")]))[
        "content-encoding"
    ] == "gzip"
    assert (await site.get(TOP, [("Accept-Encoding", "identity")])).body == BODY.form("identity")
    assert len(site.reads.queries) == 1
    assert site.count("gateway_responses_total", "top", "304") == 1
    assert site.count("gateway_responses_total", "top", "200") == 4
    assert site.count("gateway_reads_total", "top", "hit") == 5


async def test_only_get_is_answered_from_what_was_prepared() -> None:
    site = Site()
    await site.get(TOP)
    assert (await site.get(TOP, method="POST")).status == 405
    assert (await site.get(TOP, method="HEAD")).body == b""
    assert (await site.get(TOP, method="OPTIONS")).status == 204


async def test_an_alias_changes_at_the_boundary_whatever_was_prepared() -> None:
    daily = Board(name="daily", key="d:<period>", calendar=calendar_for("daily"))
    site = Site((daily,))
    site.clock.now_wall = 1_710_892_799.75  # a quarter of a second before midnight
    target = "/v1/leaderboards/daily/top"
    for _ in range(2):
        await site.get(target)
    site.clock.advance(0.25)
    await site.get(target)
    assert [query.target.label for query in site.reads.queries] == ["2024-03-19", "2024-03-20"]
    site.clock.advance(1.01)
    site.clock.move_wall(-2)  # a clock that was set back means the old period again
    await site.get(target)
    assert site.reads.queries[-1].target.label == "2024-03-19"


async def test_near_a_boundary_an_answer_is_repeated_for_a_second_at_most() -> None:
    daily = Board(name="daily", key="d:<period>", calendar=calendar_for("daily"))
    site = Site((daily,))
    site.clock.now_wall = 1_710_892_800 - 30
    site.reads.reply = Reply("hit", BODY, 0.0, stale=False, fresh_until=site.clock.monotonic() + 600)
    await site.get("/v1/leaderboards/daily/top")
    site.clock.advance(1.0)
    await site.get("/v1/leaderboards/daily/top")
    assert len(site.reads.queries) == 1
    site.clock.advance(0.01)
    await site.get("/v1/leaderboards/daily/top")
    assert len(site.reads.queries) == 2


async def test_parameters_that_mean_nothing_make_no_second_entry_and_push_nothing_out() -> None:
    site = Site()
    await site.get(TOP)
    await site.get(f"{TOP}?limit=5&period")  # refused
    for number in range(1100):
        assert (await site.get(f"{TOP}?x={number}")).body == BODY.form("identity")
        await site.get(f"{TOP}?limit=5&%78={number}")
    await site.get(f"{TOP}?limit=5&&")
    assert list(site.app._hot._kept) == [(TOP.encode(), b"")]
    assert site.count("gateway_reads_total", "top", "hit") == 2202


async def test_bodies_that_only_the_prepared_answers_keep_are_bounded_in_bytes() -> None:
    site = Site()
    for number in range(400):
        part = Rendering(b"%d" % number * 40_000, b'W/"x"', Allowance(1))
        until = site.clock.monotonic() + 1
        site.reads.reply = Reply("hit", part, 0.0, stale=False, fresh_until=until)
        await site.get(f"{TOP}?limit={'0' * number}7")
    kept = site.app._hot._kept.values()
    assert 0 < sum(prepared.part_bytes for prepared in kept) <= 16 * 2**20
    assert site.app._hot._parts_bytes == sum(prepared.part_bytes for prepared in kept)
    assert next(reversed(kept)).part_bytes == 120_000


async def test_a_flood_of_other_spellings_keeps_a_bounded_number_of_answers() -> None:
    site = Site()
    for number in range(3000):
        await site.get(f"{TOP}?limit={'0' * (number // 100)}{number % 100 + 1:03}")
    assert len(site.app._hot) == 1024
    for number in range(2000):
        await site.get(TOP, [("Accept-Encoding", f"gzip, x{number}")])
    assert len(site.app._leaderboards._codings) <= 256
    long = f"{TOP}?limit={'0' * 600}7"
    for _ in range(2):
        before = len(site.reads.queries)
        await site.get(long)
        assert len(site.reads.queries) == before + 1


async def test_answers_that_no_longer_hold_make_room_first() -> None:
    site = Site()
    for number in range(1000):
        await site.get(f"{TOP}?limit={'0' * (number // 100)}{number % 100 + 1:03}")
    site.clock.advance(2)
    for number in range(100):
        await site.get(f"{TOP}?limit={number + 1}")
    assert len(site.app._hot) == 1000 - 4 * 100 + 100


def test_a_body_that_may_not_be_compressed_any_more_is_sent_as_it_is() -> None:
    rendering = Rendering(b"{}" * 50, b'W/"x"', Allowance(1))
    representation = Representation(rendering, [], Codings())
    fields = {
        coding: dict(representation.pick([(b"accept-encoding", coding)]).headers) for coding in (b"br", b"gzip", b"br")
    }
    assert fields[b"br"][b"content-encoding"] == b"br"
    assert b"content-encoding" not in fields[b"gzip"]
    assert representation.pick([(b"accept-encoding", b"gzip")]).content == b"{}" * 50
