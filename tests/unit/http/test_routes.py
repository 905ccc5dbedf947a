"""Routes end to end over a fake read path: what is asked of it, how its errors end, in which order checks answer."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import errors
from gateway.model import Board, Query
from gateway.periods import calendar_for
from gateway.readpath import Reply
from tests.fakes import FakeClock
from tests.unit.http.driver import Site

BOARD = "/v1/leaderboards/downloads"
READS = [
    BOARD,
    f"{BOARD}/top",
    f"{BOARD}/ranks?from=1&to=5",
    f"{BOARD}/members/ann",
    f"{BOARD}/members/ann/neighbors",
    f"{BOARD}/members?member=ann",
]
PAGES = ["/", "/livez", "/readyz", "/openapi.json", "/v1/leaderboards"]


async def asked(target: str, **site: Any) -> Query:
    made = Site(**site)
    got = await made.get(target)
    assert got.status == 200, got.body
    (query,) = made.reads.queries
    return query


async def test_every_route_asks_the_read_path_what_it_says() -> None:
    top = await asked(f"{BOARD}/top?limit=7")
    assert (top.kind, top.first, top.last, top.target.key) == ("top", 1, 7, b"lb:downloads")
    ranks = await asked(f"{BOARD}/ranks?from=101&to=200")
    assert (ranks.kind, ranks.first, ranks.last) == ("ranks", 101, 200)
    assert (await asked(BOARD)).kind == "board"
    assert (await asked(f"{BOARD}/members/ann")).members == (b"ann",)
    near = await asked(f"{BOARD}/members/ann/neighbors?above=1&below=2")
    assert (near.kind, near.members, near.above, near.below) == ("neighbors", (b"ann",), 1, 2)
    assert (await asked(f"{BOARD}/members?member=b&member=a&member=b")).members == (b"b", b"a")


@pytest.mark.parametrize(
    "raw", ["team%2Fann", "a%2frank", "%25", "100%25", "a%3Fb", "a%23b", "a+b", "%7B%7D", "a:b", "%F0%9F%98%80"]
)
async def test_d1_an_encoded_slash_or_anything_else_stays_in_one_member(raw: str) -> None:
    for suffix in ("", "/neighbors"):
        site = Site()
        for _ in range(2):  # the second time by the shorter way of names that are known
            assert (await site.get(f"{BOARD}/members/{raw}{suffix}")).status == 200
        assert [query.members for query in site.reads.queries] == [(unquote(raw).encode(),)] * 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidPeriod(), 400, "invalid_period"),
        (errors.MemberNotFound(), 404, "member_not_found"),
        (errors.PeriodNotFound(), 404, "period_not_found"),
        (errors.WrongType(), 500, "wrong_type"),
        (errors.OriginUnavailable(), 503, "origin_unavailable"),
        (errors.Overloaded(), 503, "overloaded"),
        (errors.OriginTimeout(), 504, "origin_timeout"),
        (RuntimeError("secret key lb:downloads at 10.0.0.1"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("target", READS)
async def test_every_error_of_a_read_is_a_problem_that_nobody_keeps(
    error: Exception, status: int, code: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site()
    site.reads.error = error
    got = await site.get(target)
    assert (got.status, got.code) == (status, code)
    assert got["cache-control"] == "no-store"
    assert got["access-control-allow-origin"] == "*"
    assert ("retry-after" in got) == (status == 503)
    assert "etag" not in got
    assert set(got.json) == {"type", "title", "status", "detail", "code"}
    assert b"10.0.0.1" not in got.body
    records = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(records) == (1 if code == "internal_error" else 0)


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/nope", 404, "not_found"),
        ("/livez/", 404, "not_found"),
        ("/openapi.json/", 404, "not_found"),
        (f"{BOARD}/", 404, "not_found"),
        (f"{BOARD}/top/", 404, "not_found"),
        ("/%zz", 400, "invalid_parameter"),
        ("/v1/leaderboards/%zz/top", 400, "invalid_leaderboard"),
        (f"/v1/leaderboards/{'a' * 129}/top", 400, "invalid_leaderboard"),
        (f"{BOARD}/members/%zz", 400, "invalid_member"),
        (f"{BOARD}/members/%2e", 400, "invalid_member"),
        (f"{BOARD}/members/{'a' * 257}", 400, "invalid_member"),
        (f"{BOARD}/members?member=%00", 400, "invalid_member"),
        (f"{BOARD}/members", 400, "invalid_parameter"),
        (f"{BOARD}/top?limit=0", 400, "invalid_parameter"),
        (f"{BOARD}/top?limit=1&limit=1", 400, "invalid_parameter"),
        (f"{BOARD}/ranks", 400, "invalid_parameter"),
        (f"{BOARD}/top?period=current", 400, "invalid_period"),
        (f"{BOARD}/members/ann?period=", 400, "invalid_period"),
        ("/v1/leaderboards/other/top", 404, "leaderboard_not_found"),
    ],
)
async def test_what_is_wrong_with_a_request_is_said_without_a_read(target: str, status: int, code: str) -> None:
    site = Site()
    await site.get(BOARD)  # the name is known
    site.reads.queries.clear()
    got = await site.get(target)
    assert (got.status, got.code) == (status, code)
    assert got["cache-control"] == ("public, max-age=5" if code == "leaderboard_not_found" else "no-store")
    assert site.reads.queries == []


@pytest.mark.parametrize(
    ("target", "method", "code"),
    [
        ("/nope?" + "a" * 20_000, "POST", "uri_too_long"),
        ("/nope", "POST", "not_found"),
        ("/v1/leaderboards/%zz/members/%zz?period=%zz", "POST", "method_not_allowed"),
        ("/v1/leaderboards/%zz/members/%zz?period=%zz", "GET", "invalid_leaderboard"),
        ("/v1/leaderboards/none/members/%zz?period=%zz", "GET", "invalid_member"),
        ("/v1/leaderboards/none/members/a?period=%zz", "GET", "invalid_period"),
        ("/v1/leaderboards/none/members/a?period=x", "GET", "leaderboard_not_found"),
        ("/v1/leaderboards/downloads/members/a?period=x", "GET", "invalid_period"),
    ],
)
async def test_when_several_things_are_wrong_the_first_check_answers(target: str, method: str, code: str) -> None:
    assert (await Site().get(target, method=method)).code == code


async def test_f15_an_unknown_member_and_an_unknown_board_have_codes_of_their_own_on_both_routes() -> None:
    site = Site()
    site.reads.error = errors.MemberNotFound()
    for suffix in ("", "/neighbors?above=2&below=2"):
        nobody = await site.get(f"{BOARD}/members/nobody{suffix}")
        ghost = await site.get(f"/v1/leaderboards/ghost/members/ann{suffix}")
        assert (nobody.status, nobody.code) == (404, "member_not_found")
        assert (ghost.status, ghost.code) == (404, "leaderboard_not_found")
        assert nobody["cache-control"] == ghost["cache-control"] == "no-store"


@pytest.mark.parametrize("target", [*READS, *PAGES])
async def test_anything_that_does_not_read_is_405_with_allow(target: str) -> None:
    site = Site()
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "QUERY", "get"):
        got = await site.get(target, method=method)
        assert (got.status, got.code, got["allow"]) == (405, "method_not_allowed", "GET, HEAD, OPTIONS")
        assert got["cache-control"] == "no-store"
    assert site.reads.queries == []


@pytest.mark.parametrize("target", [*READS, *PAGES, "/v1/leaderboards/other/top", "/*"])
async def test_options_answers_preflights_without_a_read(target: str) -> None:
    site = Site()
    plain = await site.get(target, method="OPTIONS")
    assert (plain.status, plain.body, plain["allow"]) == (204, b"", "GET, HEAD, OPTIONS")
    assert "content-length" not in plain
    preflight = await site.get(
        target,
        [("Origin", "https://game.example"), ("Access-Control-Request-Method", "GET")],
        method="OPTIONS",
    )
    assert preflight["access-control-allow-origin"] == "*"
    assert preflight["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
    assert {"Authorization", "If-None-Match"} == set(preflight["access-control-allow-headers"].split(", "))
    assert site.reads.queries == []


@pytest.mark.parametrize("target", [*READS, *PAGES, "/nope", "/v1/leaderboards/other/top", f"{BOARD}/top?limit=0"])
@pytest.mark.parametrize("accept", ["", "gzip"])
async def test_d4_head_is_get_without_a_body(target: str, accept: str) -> None:
    for _ in range(2):
        site = Site()
        got = await site.get(target, [("Accept-Encoding", accept)])
        head = await site.get(target, [("Accept-Encoding", accept)], method="HEAD")
        ids = {"x-request-id"}
        assert head.status == got.status
        assert [field for field in head.fields if field[0].decode() not in ids] == [
            field for field in got.fields if field[0].decode() not in ids
        ]
        assert head.body == b""
        assert int(head["content-length"]) == len(got.body)


async def test_a_target_of_16_kib_is_read_and_one_byte_more_is_too_long() -> None:
    site = Site()
    base = f"{BOARD}/top?x="
    fits = base + "a" * (16 * 1024 - len(base))
    assert (await site.get(fits)).status == 200
    got = await site.get(fits + "a")
    assert (got.status, got.code, got["cache-control"]) == (414, "uri_too_long", "no-store")
    await site.get(f"{BOARD}/members/ann")
    assert (await site.get(f"{BOARD}/members/ann?{'a' * 17_000}")).code == "uri_too_long"


async def test_range_is_ignored() -> None:
    got = await Site().get(f"{BOARD}/top", [("Range", "bytes=0-5")])
    assert got.status == 200
    assert got["accept-ranges"] == "none"
    assert len(got.body) > 6


async def test_the_catalogue_shows_patterns_and_never_a_key() -> None:
    boards = (
        Board(name="downloads", key="lb:secret"),
        Board(
            name="clan-<id>",
            key="clan:<id>",
            order="asc",
            ties="competition",
            placeholders={"id": re.compile(".+")},
        ),
        Board(name="daily", key="d:<period>", calendar=calendar_for("daily")),
    )
    got = await Site(boards).get("/v1/leaderboards")
    assert got.json == {
        "leaderboards": [
            {"leaderboard": "downloads", "order": "desc", "ties": "ordinal", "period": "none"},
            {"leaderboard": "clan-<id>", "order": "asc", "ties": "competition", "period": "none"},
            {"leaderboard": "daily", "order": "desc", "ties": "ordinal", "period": "daily"},
        ]
    }


async def test_readyz_says_what_could_be_answered() -> None:
    site = Site()
    assert (await site.get("/readyz")).json == {
        "status": "ready",
        "redis": "up",
        "leaderboards": {"fresh": 1, "last_known": 0, "missing": 0},
    }
    site.readiness = site.readiness._replace(redis_up=False, fresh=0, last_known=1)
    got = await site.get("/readyz")
    assert (got.status, got.json["status"], got.json["redis"]) == (200, "degraded", "down")
    site.readiness = site.readiness._replace(ready=False, last_known=0, missing=1)
    got = await site.get("/readyz")
    assert (got.status, got.json["status"], got["cache-control"]) == (503, "not_ready", "no-store")
    assert (await site.get("/livez")).json == {"status": "ok"}


async def test_draining_says_not_ready_and_ends_connections_but_goes_on_answering() -> None:
    site = Site()
    warm = await site.get(f"{BOARD}/top")
    site.app.draining = True
    assert ((await site.get("/readyz")).status, (await site.get("/livez")).status) == (503, 200)
    again = await site.get(f"{BOARD}/top")
    assert (again.status, again.body, again["connection"]) == (200, warm.body, "close")
    assert "connection" not in warm


async def test_d9_a_client_that_hung_up_is_counted_as_such_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()

    class Gone:
        def is_closing(self) -> bool:
            return True

    for target in (f"{BOARD}/top", f"{BOARD}/members/ann"):
        await site.get(target, extensions={"leaderboard.transport": Gone()})
    site.reads.error = errors.OriginUnavailable()
    await site.get(f"{BOARD}/members/ann", extensions={"leaderboard.transport": Gone()})
    assert site.count("gateway_responses_total", "top", "client_closed") == 1
    assert site.count("gateway_responses_total", "member", "client_closed") == 2
    assert site.count("gateway_responses_total", "member", "503") == 0
    assert caplog.records == []


async def test_a_send_that_fails_because_nobody_is_there_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()

    async def send(*message: Any) -> Any:
        raise OSError("gone")

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": f"{BOARD}/top".encode(),
        "path": "",
        "query_string": b"",
        "headers": [],
    }
    for _ in range(2):  # by the long way, then from what was prepared
        await site.app(scope, send, send)
    assert site.count("gateway_responses_total", "top", "client_closed") == 2
    assert caplog.records == []


async def test_a_request_that_is_cancelled_while_the_server_stops_gets_a_503(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.reads.error = asyncio.CancelledError()
    got = await site.get(f"{BOARD}/members/ann")
    assert (got.status, got.code) == (503, "origin_unavailable")
    assert caplog.records == []


async def test_every_read_counts_once_under_one_outcome() -> None:
    site = Site()
    for _ in range(3):
        await site.get(f"{BOARD}/top")
    await site.get(f"{BOARD}/members/ann")
    site.reads.error = errors.MemberNotFound()
    await site.get(f"{BOARD}/members/bob")
    site.reads.error = errors.OriginTimeout()
    await site.get(f"{BOARD}/members/bob")
    await site.get(f"{BOARD}/members/%zz")
    await site.get("/v1/leaderboards/none/top")
    counts = {
        labels: cell[0] for labels, cell in site.counters.counters["gateway_reads_total"].cells.items() if cell[0]
    }
    assert counts == {("top", "hit"): 3, ("member", "miss"): 2, ("member", "failed"): 1}
    series = site.counters.histograms["gateway_read_duration_seconds"].series
    assert {route[0]: sum(each.counts) for route, each in series.items() if sum(each.counts)} == {"top": 3, "member": 3}
    statuses = {
        labels: cell[0] for labels, cell in site.counters.counters["gateway_responses_total"].cells.items() if cell[0]
    }
    assert statuses == {
        ("top", "200"): 3,
        ("member", "200"): 1,
        ("member", "404"): 1,
        ("member", "504"): 1,
        ("member", "400"): 1,
        ("top", "404"): 1,
    }


async def test_no_label_is_ever_what_a_client_chose() -> None:
    site = Site()
    for target in ("/evil", "/v1/leaderboards/evil/top", f"{BOARD}/members/evil", f"{BOARD}/top?limit=evil"):
        for method in ("GET", "EVIL"):
            await site.get(target, method=method)
    labels = {part for counter in site.counters.counters.values() for values in counter.cells for part in values}
    assert not any("evil" in label.lower() for label in labels)


async def test_a_periodic_board_is_read_in_the_period_that_the_clock_says() -> None:
    daily = Board(name="daily", key="d:<period>", calendar=calendar_for("daily"))
    site = Site((daily,))
    site.clock.now_wall = 1_710_849_599.5  # 2024-03-19T11:59:59.5Z, half a second before noon
    for _ in range(2):
        await site.get("/v1/leaderboards/daily/members/ann")
    site.clock.advance(43_201)
    await site.get("/v1/leaderboards/daily/members/ann")
    await site.get("/v1/leaderboards/daily/members/ann?period=previous")
    assert [query.target.label for query in site.reads.queries] == [
        "2024-03-19",
        "2024-03-19",
        "2024-03-20",
        "2024-03-19",
    ]


async def test_a_stale_member_answer_says_so_in_its_fields() -> None:
    clock = FakeClock()
    site = Site()
    site.reads.reply = Reply("stale", b"{}", clock.wall() - 61.7, stale=True, stored=False, age_s=61.7)
    got = await site.get(f"{BOARD}/members/ann")
    assert got["leaderboard-stale"] == "61"
    assert got["cache-status"] == "leaderboard-gateway; hit; ttl=-61"
    assert got["cache-control"] == "no-store"


PATH_PIECES = ["/", "v1", "leaderboards", "downloads", "members", "ann", "top", "ranks", "neighbors", "livez", ".."]
ODD_PIECES = ["%2F", "%", "%zz", "%00", "+", "%6Civez", "#", "*", "~", "%F0%9F%98%80", "1", "101"]
QUERY_PIECES = ["?", "&", "=", "limit", "from", "to", "above", "member", "period"]
PIECES = st.sampled_from([*PATH_PIECES, *ODD_PIECES, *QUERY_PIECES])


@given(st.lists(PIECES, max_size=14).map("".join), st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "TRACE"]))
def test_any_target_at_all_gets_an_answer_that_blames_nobody_but_the_caller(target: str, method: str) -> None:
    async def asked_twice() -> None:
        site = Site()
        for start in ("/", "/v1/leaderboards/", f"{BOARD}/", f"{BOARD}/members/"):
            for _ in range(2):
                got = await site.get(start + target, method=method)
                assert got.status in {200, 204, 400, 404, 405}
                assert len(got.all("cache-control")) == 1

    asyncio.run(asked_twice())
