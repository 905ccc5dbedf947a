"""Header fields of every kind of answer: what caches may do, what clients may see, and what the linter thinks."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest

from gateway import errors
from gateway.model import Board
from gateway.periods import calendar_for
from gateway.readpath import Reply
from tests.httplint import lint
from tests.unit.http.driver import BODY, Got, Site

TOP = "/v1/leaderboards/downloads/top"
MEMBER = "/v1/leaderboards/downloads/members/ann"
NOON = 1_710_849_600.0  # 2024-03-19T12:00:00Z
DAILY = Board(name="daily", key="d:<period>", calendar=calendar_for("daily"), edge_ttl_s=10, stale_if_error_s=100_000)


def reply(site: Site, **fields: Any) -> Reply:
    given: dict[str, Any] = {"outcome": "hit", "body": BODY, "as_of": site.clock.wall(), "stale": False, **fields}
    return Reply(**given)


def lives(got: Got) -> list[int]:
    """Return every number of seconds that the answer may be kept for, by anyone."""
    fields = got.all("cache-control") + got.all("cdn-cache-control") + got.all("surrogate-control")
    directives = [part.strip().partition("=") for field in fields for part in field.split(",")]
    return [int(value) for _, equals, value in directives if equals] + [
        int(each) for each in got.all("x-accel-expires")
    ]


async def test_a_fresh_top_says_how_long_clients_and_edges_may_keep_it() -> None:
    got = await Site().get(TOP)
    assert got["cache-control"] == "public, max-age=2, stale-while-revalidate=5, stale-if-error=3600"
    assert got["cdn-cache-control"] == "public, max-age=5, stale-while-revalidate=5, stale-if-error=3600"
    assert got["vary"] == "Accept-Encoding"
    assert got["etag"] == BODY.etag.decode()
    assert got["cache-status"] == "leaderboard-gateway; hit"
    assert got["leaderboard-as-of"] == "2023-11-14T22:13:20.000Z"
    assert got["content-type"] == "application/json"
    assert not {"age", "set-cookie", "x-request-id", "leaderboard-stale"} & got.names


@pytest.mark.parametrize(
    ("outcome", "stored", "said"),
    [
        ("miss", True, "fwd=uri-miss; stored"),
        ("miss", False, "fwd=uri-miss"),
        ("joined", True, "fwd=uri-miss; collapsed"),
    ],
)
async def test_cache_status_tells_how_the_read_ended(outcome: str, stored: bool, said: str) -> None:
    site = Site()
    site.reads.reply = reply(site, outcome=outcome, stored=stored, fresh_until=site.clock.monotonic() + 1)
    assert (await site.get(TOP))["cache-status"] == f"leaderboard-gateway; {said}"
    site.reads.reply = None
    assert (await site.get(TOP))["cache-status"] == "leaderboard-gateway; hit"


async def test_e1_no_answer_has_s_maxage_and_a_member_read_has_no_life_at_all() -> None:
    site = Site(dialects=("nginx", "varnish", "fastly", "cloudflare"))
    for target in (MEMBER, "/v1/leaderboards/none/top", "/v1/leaderboards", "/nope", TOP):
        got = await site.get(target)
        assert not any(b"s-maxage" in value for _, value in got.fields)
        site.reads.reply = reply(site, outcome="stale", stale=True, age_s=9.0) if target == TOP else None
        assert not any(b"s-maxage" in value for _, value in (await site.get(target)).fields)
    site.reads.reply = None
    assert (await site.get(MEMBER))["cache-control"] == "private, no-store"
    assert (await Site().get(MEMBER))["cache-control"] == "no-store"


async def test_a_stale_answer_is_kept_for_two_seconds_and_says_its_age() -> None:
    site = Site()
    site.reads.reply = reply(site, outcome="stale", stale=True, as_of=site.clock.wall() - 60, age_s=60.9)
    got = await site.get(TOP)
    assert got.status == 200
    assert got["leaderboard-stale"] == "60"
    assert got["cache-status"] == "leaderboard-gateway; hit; ttl=-60"
    assert got["cache-control"].startswith("public, max-age=2, stale-if-error=")
    assert got["cdn-cache-control"].startswith("public, max-age=2, stale-if-error=")
    assert got["leaderboard-as-of"] == "2023-11-14T22:12:20.000Z"


@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.0, 5.0, 9.0, 60.0, 3600.0, 43_200.0])
@pytest.mark.parametrize("target", ["top", "top?period=previous", "ranks?from=1&to=2", "", "*", "/v1/leaderboards"])
@pytest.mark.parametrize("stale", [False, True])
async def test_no_life_reaches_past_the_instant_at_which_the_alias_changes(
    seconds: float, target: str, stale: bool
) -> None:
    site = Site((DAILY,), dialects=("nginx", "fastly"))
    site.clock.now_wall = NOON + 43_200 - seconds - 0.001
    if stale:
        site.reads.reply = reply(site, outcome="stale", stale=True, age_s=3.0)
    path = {"": "/v1/leaderboards/daily", "*": "/v1/leaderboards/daily?period=2024-03-19"}.get(target, target)
    got = await site.get(path if path.startswith("/") else f"/v1/leaderboards/daily/{path}")
    assert got.status == 200
    assert max(lives(got)) <= seconds


async def test_a_label_has_no_boundary_since_it_always_means_the_same() -> None:
    site = Site((DAILY,))
    site.clock.now_wall = NOON + 43_199
    got = await site.get("/v1/leaderboards/daily/top?period=2024-03-19")
    assert got["cdn-cache-control"] == "public, max-age=10, stale-while-revalidate=5, stale-if-error=100000"


async def test_a_finished_period_is_kept_for_a_day_once_it_has_settled() -> None:
    site = Site((DAILY,))
    site.clock.now_wall = NOON - 43_200 + 600 - 1
    target = "/v1/leaderboards/daily/top?period=2024-03-18"
    assert (await site.get(target))["cdn-cache-control"].startswith("public, max-age=10,")
    site.clock.advance(2)
    got = await site.get(target)
    assert got["cache-control"] == "public, max-age=3600"
    assert got["cdn-cache-control"] == "public, max-age=86400"
    previous = await site.get("/v1/leaderboards/daily/top?period=previous")
    assert max(lives(previous)) <= 86_400 - 600


async def test_what_was_read_before_a_period_was_final_is_kept_as_long_as_a_running_one_however_late_it_is_sent() -> (
    None
):
    """A score may have come in between the read and the end of settling: nobody may hold the old winner for a day."""
    board = replace(DAILY, finished="immutable")
    site = Site((board,))
    site.clock.now_wall = NOON
    site.reads.reply = reply(site, final=False)
    got = await site.get("/v1/leaderboards/daily/top?period=2024-03-18")
    assert got["cdn-cache-control"].startswith("public, max-age=10,")
    assert "immutable" not in got["cache-control"]


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("label", ["2024-03-18", "current"])
async def test_rows_without_their_profiles_are_kept_for_a_second_and_by_nobody_after_it(
    label: str, final: bool
) -> None:
    site = Site((replace(DAILY, finished="immutable"),), ("nginx",))
    site.clock.now_wall = NOON
    site.reads.reply = reply(site, final=final, short_lived=True)
    got = await site.get(f"/v1/leaderboards/daily/top?period={label}")
    assert got["cache-control"] == got["cdn-cache-control"] == "public, max-age=1"
    assert got["x-accel-expires"] == "1"


async def test_a_board_may_call_its_finished_periods_immutable() -> None:
    board = Board(name="daily", key="d:<period>", calendar=calendar_for("daily"), finished="immutable")
    site = Site((board,))
    site.clock.now_wall = NOON
    got = await site.get("/v1/leaderboards/daily/top?period=2024-03-01")
    assert got["cache-control"] == "public, max-age=31536000, immutable"
    running = await site.get("/v1/leaderboards/daily/top?period=2024-03-19")
    assert "immutable" not in running["cache-control"]


async def test_a_board_read_from_the_primary_is_kept_by_nobody() -> None:
    site = Site((Board(name="final", key="k", read_from="primary", cache_top=False, ttl_s=0, grace_s=0),))
    for _ in range(2):
        got = await site.get("/v1/leaderboards/final/top", [("If-None-Match", "*")])
        assert (got.status, got["cache-control"], "etag" in got, "x-request-id" in got) == (
            200,
            "no-store",
            False,
            True,
        )
    assert len(site.reads.queries) == 2


async def test_the_catalogue_is_kept_as_long_as_the_shortest_board_that_is_kept_at_all() -> None:
    final = Board(name="final", key="f", cache_top=False, client_ttl_s=0, edge_ttl_s=0)
    quick = Board(name="quick", key="q", client_ttl_s=1, edge_ttl_s=3, stale_if_error_s=60)
    got = await Site((final, quick, Board(name="slow", key="s"))).get("/v1/leaderboards")
    assert got["cache-control"] == "public, max-age=1, stale-while-revalidate=5, stale-if-error=60"
    assert (got["cache-status"], got["vary"]) == ("leaderboard-gateway; hit", "Accept-Encoding")
    assert got["leaderboard-as-of"] == "2023-11-14T22:13:20.000Z"
    assert (await Site((final,)).get("/v1/leaderboards"))["cdn-cache-control"].startswith("public, max-age=5,")


async def test_member_reads_are_kept_by_nobody_and_say_when_they_were_read() -> None:
    for target in (MEMBER, f"{MEMBER}/neighbors", "/v1/leaderboards/downloads/members?member=ann"):
        got = await Site().get(target, [("If-None-Match", "*"), ("Accept-Encoding", "br")])
        assert got.status == 200
        assert got["cache-control"] == "no-store"
        assert got["leaderboard-as-of"] == "2023-11-14T22:13:20.000Z"
        assert not {"etag", "vary", "cdn-cache-control", "content-encoding", "age"} & got.names


async def test_a_member_who_is_not_there_is_told_when_that_was_read() -> None:
    site = Site()
    site.reads.error = errors.MemberNotFound(as_of=site.clock.wall())
    got = await site.get(MEMBER)
    assert got["leaderboard-as-of"] == "2023-11-14T22:13:20.000Z"
    assert not {"leaderboard-stale", "cache-status"} & got.names


async def test_an_absence_that_a_node_out_of_step_told_of_is_marked_as_stale_answers_are() -> None:
    site = Site()
    site.reads.error = errors.MemberNotFound(as_of=site.clock.wall() - 3, stale_age_s=3.2)
    got = await site.get(MEMBER)
    assert (got.status, got["cache-control"], got["leaderboard-stale"]) == (404, "no-store", "3")
    site.reads.error = None
    site.reads.reply = reply(site, outcome="stale", body=b"{}", stale=True, stored=False, age_s=3.2)
    assert got["cache-status"] == (await site.get(MEMBER))["cache-status"]


async def test_d5_all_forms_share_one_weak_tag_and_vary() -> None:
    site = Site()
    bodies = {}
    for coding in ("identity", "gzip", "br"):
        for _ in range(2):
            got = await site.get(TOP, [("Accept-Encoding", coding)])
            assert got["etag"].startswith('W/"')
            assert got["vary"] == "Accept-Encoding"
            assert got.all("content-encoding") == ([] if coding == "identity" else [coding])
            bodies[coding] = got.body
    assert gzip.decompress(bodies["gzip"]) == brotli.decompress(bodies["br"]) == bodies["identity"]


async def test_a_304_says_what_the_200_would_and_nothing_about_content() -> None:
    site = Site(dialects=("nginx", "varnish", "fastly", "cloudflare"))
    for target in (TOP, "/v1/leaderboards", "/openapi.json", "/"):
        full = await site.get(target)
        for condition in (full["etag"], full["etag"].removeprefix("W/"), "*", f'"x", {full["etag"]}'):
            got = await site.get(target, [("If-None-Match", condition), ("Accept-Encoding", "gzip")])
            assert (got.status, got.body) == (304, b"")
            assert not [name for name in got.names if name.startswith("content-")]
            about_content = {"content-type", "content-length", "accept-ranges"}
            assert [field for field in full.fields if field[0].decode() not in about_content] == got.fields
        assert (await site.get(target, [("If-None-Match", '"other"')])).status == 200
        two_lines = [("If-None-Match", '"other"'), ("If-None-Match", full["etag"])]
        assert (await site.get(target, two_lines)).status == 304
        assert (await site.get(target, [("If-None-Match", "*")], method="HEAD")).status == 304


@pytest.mark.parametrize(
    "cookie", [[], [("Cookie", "sid=1")], [("Authorization", "Bearer x")], [("Origin", "https://a.example")]]
)
async def test_e8_nothing_that_a_client_sends_of_itself_changes_a_cacheable_answer(
    cookie: list[tuple[str, str]],
) -> None:
    site = Site()
    plain = await site.get(TOP)
    got = await site.get(TOP, [*cookie, ("X-Request-Id", "mine"), ("User-Agent", "x")])
    assert got.fields == plain.fields
    assert "set-cookie" not in got
    assert got["vary"] == "Accept-Encoding"


async def test_cors_is_open_and_exposes_what_clients_need() -> None:
    for target in (TOP, MEMBER, "/nope", "/livez", "/openapi.json"):
        got = await Site().get(target, [("Origin", "https://game.example")])
        assert got["access-control-allow-origin"] == "*"
        exposed = set(got["access-control-expose-headers"].split(", "))
        assert {"ETag", "Age", "Retry-After", "Cache-Status", "Leaderboard-As-Of", "Leaderboard-Stale"} <= exposed


async def test_dialects_add_their_fields_to_cacheable_answers_only() -> None:
    site = Site(dialects=("nginx", "varnish", "fastly", "cloudflare"))
    got = await site.get(TOP)
    assert got["x-accel-expires"] == "5"
    assert "downloads" in got["surrogate-key"]
    assert "downloads" in got["cache-tag"]
    for target in (MEMBER, "/nope"):
        assert (
            not {"x-accel-expires", "surrogate-key", "surrogate-control", "cache-tag"} & (await site.get(target)).names
        )


async def test_what_nobody_may_keep_is_private_as_well_for_fastly_which_obeys_only_that() -> None:
    final = Board(name="final", key="f", cache_top=False)
    site = Site((Board(name="downloads", key="k"), final), dialects=("fastly",))
    everywhere = [MEMBER, f"{MEMBER}/neighbors", "/nope", f"{TOP}?limit=x", "/livez", "/v1/leaderboards/final/top"]
    for method in ("GET", "OPTIONS", "POST"):
        for target in [*everywhere, MEMBER]:  # the second time by the short way of names that are known
            assert (await site.get(target, method=method))["cache-control"] == "private, no-store", (method, target)
    assert "private" not in (await site.get(TOP))["cache-control"]
    assert (await site.get("/v1/leaderboards/none/top"))["cache-control"] == "public, max-age=5"


KINDS: dict[str, tuple[str, str, list[tuple[str, str]], Exception | None]] = {
    "top": ("GET", TOP, [], None),
    "top gzip": ("GET", TOP, [("Accept-Encoding", "gzip")], None),
    "top br": ("GET", TOP, [("Accept-Encoding", "br")], None),
    "top 304": ("GET", TOP, [("If-None-Match", "*")], None),
    "top HEAD": ("HEAD", TOP, [], None),
    "ranks": ("GET", "/v1/leaderboards/downloads/ranks?from=1&to=3", [], None),
    "board": ("GET", "/v1/leaderboards/downloads", [], None),
    "catalogue": ("GET", "/v1/leaderboards", [], None),
    "member": ("GET", MEMBER, [], None),
    "member HEAD": ("HEAD", MEMBER, [], None),
    "neighbors": ("GET", f"{MEMBER}/neighbors", [], None),
    "members": ("GET", "/v1/leaderboards/downloads/members?member=ann", [], None),
    "index": ("GET", "/", [], None),
    "openapi": ("GET", "/openapi.json", [], None),
    "livez": ("GET", "/livez", [], None),
    "readyz": ("GET", "/readyz", [], None),
    "options": ("OPTIONS", TOP, [], None),
    "preflight": ("OPTIONS", TOP, [("Origin", "https://a.example"), ("Access-Control-Request-Method", "GET")], None),
    "400": ("GET", f"{TOP}?limit=x", [], None),
    "404 board": ("GET", "/v1/leaderboards/none/top", [], None),
    "404 member": ("GET", MEMBER, [], errors.MemberNotFound()),
    "404 period": ("GET", TOP, [], errors.PeriodNotFound()),
    "404 path": ("GET", "/nope", [], None),
    "405": ("POST", TOP, [], None),
    "414": ("GET", "/" + "a" * 17_000, [], None),
    "500": ("GET", TOP, [], errors.WrongType()),
    "500 bug": ("GET", TOP, [], ZeroDivisionError()),
    "503": ("GET", TOP, [], errors.OriginUnavailable()),
    "503 overloaded": ("GET", MEMBER, [], errors.Overloaded()),
    "504": ("GET", MEMBER, [], errors.OriginTimeout()),
}


TWO_WORDS = "CC_CONFLICTING [warning] field-cache-control: The no-store cache directive overrides other directives."


@pytest.mark.parametrize("kind", KINDS)
async def test_the_linter_has_nothing_to_say(kind: str) -> None:
    method, target, headers, error = KINDS[kind]
    site = Site(dialects=("nginx", "varnish", "cloudflare"))
    fastly = Site(dialects=("fastly",))
    site.reads.error = fastly.reads.error = error
    got = await site.get(target, headers, method=method)
    assert lint(got.raw, method=method, target=target, headers=headers) == []
    # Fastly wants two words where by the standard one would do, and that is all.
    also = await fastly.get(target, headers, method=method)
    found = [] if got["cache-control"] != "no-store" else [TWO_WORDS]
    assert lint(also.raw, method=method, target=target, headers=headers) == found


async def test_the_linter_has_nothing_to_say_of_stale_finished_and_unready_answers() -> None:
    site = Site((DAILY,))
    site.clock.now_wall = NOON
    site.readiness = site.readiness._replace(ready=False)
    finished = await site.get("/v1/leaderboards/daily/top?period=2024-03-01")
    unready = await site.get("/readyz")
    site.reads.reply = reply(site, outcome="stale", stale=True, age_s=60.0)
    stale = await site.get("/v1/leaderboards/daily/top")
    assert [lint(got.raw) for got in (finished, unready, stale)] == [[], [], []]


async def test_e5_every_error_says_that_nobody_may_keep_it() -> None:
    for method, target, headers, error in KINDS.values():
        site = Site()
        site.reads.error = error
        got = await site.get(target, headers, method=method)
        if got.status >= 400:
            board_404 = target == "/v1/leaderboards/none/top"
            assert got["cache-control"] == ("public, max-age=5" if board_404 else "no-store")
            assert ("x-request-id" in got) == (not board_404)
            assert got["content-type"] == "application/problem+json"
    assert (await Site().get(TOP)).status == 200
