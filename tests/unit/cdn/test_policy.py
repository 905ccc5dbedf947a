"""Which fields each kind of answer has, and that no life reaches where it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdn import policy
from cdn.contradictions import in_headers
from cdn.dialects import Dialect, Headers
from cdn.policy import Lives, shortest
from cdn.tags import tags_of

ALL: tuple[Dialect, ...] = ("nginx", "varnish", "fastly", "cloudflare")
SECONDS = st.integers(0, 100_000)
LIVES = st.builds(
    Lives,
    client_ttl_s=SECONDS,
    edge_ttl_s=SECONDS,
    stale_while_revalidate_s=SECONDS,
    stale_if_error_s=SECONDS,
    dialects=st.sampled_from([(), ALL, ("nginx",), ("fastly",)]),
)


def fields(headers: Headers) -> dict[str, str]:
    """Return the fields by name; each stands once."""
    found = {name.decode(): value.decode() for name, value in headers}
    assert len(found) == len(headers)
    return found


def life(value: str, directive: str) -> int:
    """Return a directive's seconds, 0 if it is not there."""
    for part in value.split(", "):
        name, _, number = part.partition("=")
        if name == directive:
            return int(number)
    return 0


def test_a_fresh_answer_has_one_life_for_clients_and_one_for_edges() -> None:
    assert fields(policy.fresh(Lives())) == {
        "cache-control": "public, max-age=2, stale-while-revalidate=5, stale-if-error=3600",
        "cdn-cache-control": "public, max-age=5, stale-while-revalidate=5, stale-if-error=3600",
        "vary": "Accept-Encoding",
    }


def test_a_stale_answer_is_kept_two_seconds_and_then_only_for_errors() -> None:
    assert fields(policy.stale(Lives())) == {
        "cache-control": "public, max-age=2, stale-if-error=3600",
        "cdn-cache-control": "public, max-age=2, stale-if-error=3600",
        "vary": "Accept-Encoding",
    }


def test_a_stale_answer_gives_nginx_the_window_without_which_it_lets_a_crowd_through() -> None:
    stale = fields(policy.stale(Lives(dialects=("nginx",))))
    assert stale["cache-control"] == "public, max-age=2, stale-while-revalidate=2, stale-if-error=3600"


def test_a_finished_period_is_kept_an_hour_and_a_day() -> None:
    finished = fields(policy.finished(Lives()))
    assert finished["cache-control"] == "public, max-age=3600"
    assert finished["cdn-cache-control"] == "public, max-age=86400"


def test_a_finished_period_may_be_declared_immutable_but_not_under_an_alias() -> None:
    by_label = fields(policy.finished(Lives(), immutable=True))
    assert by_label["cache-control"] == "public, max-age=31536000, immutable"
    by_alias = fields(policy.finished(Lives(), immutable=True, until_boundary_s=10**6))
    assert by_alias["cache-control"] == "public, max-age=3600"


def test_what_nobody_keeps_says_so_and_nothing_else() -> None:
    assert policy.uncached() == [(b"cache-control", b"no-store")]


def test_fastly_is_told_in_the_word_that_it_obeys() -> None:
    dialects: tuple[Dialect, ...] = ("fastly",)
    assert policy.uncached(dialects) == [(b"cache-control", b"private, no-store")]


def test_an_unknown_leaderboard_is_remembered_five_seconds() -> None:
    assert policy.board_not_found() == [(b"cache-control", b"public, max-age=5")]


def test_each_dialect_adds_its_own_fields() -> None:
    tags = tags_of("downloads", "2026-03")
    found = fields(policy.fresh(Lives(dialects=ALL), tags=tags))
    assert found["x-accel-expires"] == "5"
    assert found["x-cache-tags"] == "lb lb:downloads lb:downloads:2026-03"
    assert found["surrogate-control"] == "max-age=5, stale-while-revalidate=5, stale-if-error=3600"
    assert found["surrogate-key"] == "lb lb:downloads lb:downloads:2026-03"
    assert found["cache-tag"] == "lb,lb:downloads,lb:downloads:2026-03"


def test_without_tags_no_tag_field_is_sent() -> None:
    assert not {"x-cache-tags", "surrogate-key", "cache-tag"} & set(fields(policy.fresh(Lives(dialects=ALL))))


def test_the_field_for_nginx_follows_the_standard_one_unless_clients_may_keep_nothing() -> None:
    names = [name for name, _ in policy.fresh(Lives(dialects=("nginx",)))]
    assert names.index(b"x-accel-expires") > names.index(b"cache-control")
    names = [name for name, _ in policy.fresh(Lives(client_ttl_s=0, dialects=("nginx",)))]
    assert names.index(b"x-accel-expires") < names.index(b"cache-control")


Builder = Callable[..., Headers]


@pytest.mark.parametrize("build", [policy.fresh, policy.stale, policy.finished])
@given(lives=LIVES, boundary_s=st.integers(-10, 200_000))
def test_no_life_reaches_past_a_boundary_through_edge_and_client(build: Builder, lives: Lives, boundary_s: int) -> None:
    found = fields(build(lives, tags=tags_of("b"), until_boundary_s=boundary_s))
    edge, client = found["cdn-cache-control"], found["cache-control"]
    reach = 0
    for value in (edge, client):
        window = max(life(value, "stale-while-revalidate"), life(value, "stale-if-error"))
        reach += life(value, "max-age") + window
    assert reach <= max(0, boundary_s)
    if accel := int(found.get("x-accel-expires", 0)):  # nginx counts whole seconds, and may add one
        assert life(client, "max-age") + accel + 1 <= boundary_s


@pytest.mark.parametrize("build", [policy.fresh, policy.stale, policy.finished])
@given(lives=LIVES)
def test_no_answer_contradicts_itself_whatever_the_lives(build: Builder, lives: Lives) -> None:
    assert list(in_headers(build(lives, tags=tags_of("b")))) == []


@given(lives=LIVES)
def test_a_boundary_beyond_the_horizon_shortens_nothing(lives: Lives) -> None:
    assert lives.until(lives.horizon_s) == lives


@given(lives=LIVES, boundary_s=st.integers(1, 100))
def test_near_a_boundary_the_edge_gets_at_least_half_of_the_rest(lives: Lives, boundary_s: int) -> None:
    assert lives.until(boundary_s).edge_ttl_s >= min(lives.edge_ttl_s, boundary_s // 2)


def test_the_catalogue_has_the_shortest_life_of_each_kind() -> None:
    both = [Lives(client_ttl_s=1, edge_ttl_s=9), Lives(client_ttl_s=3, edge_ttl_s=4, stale_if_error_s=10)]
    assert shortest(both) == Lives(client_ttl_s=1, edge_ttl_s=4, stale_if_error_s=10)
    assert shortest([]) == Lives()
