"""What cannot be true together is found, and said with its reason."""

from __future__ import annotations

import pytest

from cdn import contradictions, policy
from cdn.dialects import Dialect, Headers
from cdn.policy import Lives
from cdn.tags import tags_of


@pytest.mark.parametrize("key", ["s-maxage", "s_maxage", "s_maxage_s"])
def test_a_shared_life_of_the_kind_that_forbids_stale_serving_is_refused_with_the_reason(key: str) -> None:
    [(path, message)] = contradictions.in_declaration({key: 60}, cached=True)
    assert path == key
    assert "proxy-revalidate" in message
    assert "edge_ttl_s" in message


def test_tags_on_a_board_that_nobody_keeps_are_refused() -> None:
    [(path, message)] = contradictions.in_declaration({"tags": ["x"], "read_from": "primary"}, cached=False)
    assert path == "tags"
    assert "no-store" in message


def test_a_board_that_nobody_keeps_cannot_be_immutable() -> None:
    assert [path for path, _ in contradictions.in_declaration({"finished": "immutable"}, cached=False)] == ["finished"]


def test_an_ordinary_declaration_has_no_contradiction() -> None:
    declared = {"name": "b", "key": "lb:b", "edge_ttl_s": 5, "finished": "immutable"}
    assert list(contradictions.in_declaration(declared, cached=True)) == []


def test_a_life_longer_than_the_shortest_period_is_refused() -> None:
    lives = Lives(edge_ttl_s=90_000, stale_if_error_s=82_801)
    found = dict(contradictions.in_periods(lives, 82_800))
    assert set(found) == {"edge_ttl_s", "stale_if_error_s"}
    assert "82800 s" in found["edge_ttl_s"]
    assert list(contradictions.in_periods(Lives(), 82_800)) == []


def test_an_edge_that_gets_no_tags_cannot_be_purged_by_them() -> None:
    found = list(contradictions.in_purging(("nginx", "fastly"), ("fastly", "varnish")))
    assert [path for path, _ in found] == ["purge[1].edge"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "no Cache-Control"),
        ([(b"cache-control", b"no-store"), (b"x-cache-tags", b"lb")], "x-cache-tags"),
        ([(b"cache-control", b"no-store"), (b"cdn-cache-control", b"public, max-age=5")], "cdn-cache-control"),
        ([(b"cache-control", b"no-store, max-age=5, public")], "with a life"),
        ([(b"cache-control", b"public, s-maxage=5, stale-while-revalidate=5")], "proxy-revalidate"),
        ([(b"cache-control", b"max-age=5")], "not public"),
        ([(b"cache-control", b"public, max-age=1.5")], "whole seconds"),
        ([(b"cache-control", b"public, max-age=5"), (b"set-cookie", b"a=b")], "cookie"),
        ([(b"cache-control", b"public, max-age=5"), (b"vary", b"Authorization")], "varies"),
    ],
)
def test_fields_that_contradict_each_other_are_named(headers: Headers, said: str) -> None:
    assert any(said in message for message in contradictions.in_headers(headers))


def test_no_answer_of_the_policy_combines_s_maxage_or_tags_with_what_excludes_them() -> None:
    dialects: tuple[Dialect, ...] = ("nginx", "varnish", "fastly", "cloudflare")
    lives = Lives(dialects=dialects)
    tags = tags_of("b", "2026")
    for headers in (
        policy.fresh(lives, tags=tags),
        policy.stale(lives, tags=tags),
        policy.finished(lives, tags=tags, immutable=True),
        policy.uncached(),
        policy.board_not_found(),
        policy.uncached(dialects),
    ):
        assert list(contradictions.in_headers(headers)) == []
