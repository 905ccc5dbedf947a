"""Query strings become checked values: one meaning for each, and anything doubtful refused."""

from __future__ import annotations

from urllib.parse import quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidMember, InvalidParameter, InvalidPeriod
from gateway.http.params import Params, parse
from gateway.http.paths import Route

MEMBERS = st.lists(st.text("abé😀+ %&=#/:{}", min_size=1, max_size=20), min_size=1, max_size=100)


def test_every_parameter_has_its_default() -> None:
    assert parse("top", b"") == Params(None, first=1, last=100)
    assert parse("neighbors", b"") == Params(None, above=5, below=5)
    assert parse("member", b"") == parse("board", b"") == Params()


def test_parameters_are_read() -> None:
    assert parse("top", b"limit=10&period=2026-W12") == Params("2026-W12", last=10)
    assert parse("ranks", b"to=200&from=101") == Params(None, first=101, last=200)
    assert parse("neighbors", b"above=0&below=50&period=previous") == Params("previous", above=0, below=50)
    assert parse("members", b"member=a&member=b&member=a").members == (b"a", b"b")


@pytest.mark.parametrize("value", ["1", "100", "0100", "%31", "000000000000000000000000000000000000000000000000007"])
def test_a_whole_number_within_bounds_is_taken(value: str) -> None:
    assert 1 <= parse("top", f"limit={value}".encode()).last <= 100


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "101",
        "-1",
        "+1",
        "%2B1",
        "1.0",
        "1e2",
        "0x10",
        "1_0",
        "%201",
        "1%20",
        "1%0A",
        "٣",
        "%D9%A3",
        "²",
        "1" * 5000,
        "%",
    ],
)
def test_anything_but_ascii_digits_within_bounds_is_refused(value: str) -> None:
    with pytest.raises(InvalidParameter):
        parse("top", f"limit={value}".encode())


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"from=1",
        b"to=1",
        b"from=2&to=1",
        b"from=1&to=101",
        b"from=0&to=5",
        b"from=1&to=9007199254740992",
        b"from=9007199254740992&to=9007199254740992",
    ],
)
def test_ranks_need_both_ends_in_order_within_100_rows_below_2_to_the_53(query: bytes) -> None:
    with pytest.raises(InvalidParameter):
        parse("ranks", query)


def test_ranks_reach_up_to_2_to_the_53() -> None:
    top = 2**53 - 1
    assert parse("ranks", f"from={top - 99}&to={top}".encode()) == Params(None, first=top - 99, last=top)


@pytest.mark.parametrize(
    ("route", "query"), [("neighbors", b"above=51"), ("neighbors", b"below=-1"), ("neighbors", b"above=")]
)
def test_neighbors_are_0_to_50_each(route: Route, query: bytes) -> None:
    with pytest.raises(InvalidParameter):
        parse(route, query)


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("top", b"limit=5&limit=5"),
        ("top", b"period=current&period=current"),
        ("ranks", b"from=1&to=2&from=1"),
        ("neighbors", b"above=1&%61bove=1"),
        ("member", b"period=a&period=b"),
    ],
)
def test_a_known_parameter_given_twice_is_refused(route: Route, query: bytes) -> None:
    with pytest.raises(InvalidParameter, match="twice"):
        parse(route, query)


@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name not in {"limit", "period"}), st.text(max_size=8)))
def test_unknown_parameters_are_ignored(unknown: dict[str, str]) -> None:
    assert parse("top", (urlencode(unknown) + "&limit=7").encode()) == Params(None, last=7)


@pytest.mark.parametrize(
    "query", [b"x=%zz", b"%zz=1", b"from=a&from=b", b"Limit=x", b"x=%ff&&=&", b"member=%00", b";limit=0"]
)
def test_what_a_route_does_not_know_may_be_anything(query: bytes) -> None:
    assert parse("top", query) == Params()


@given(MEMBERS)
def test_members_arrive_as_browsers_encode_them(members: list[str]) -> None:
    query = "&".join(f"member={quote_plus(member)}" for member in members)
    assert parse("members", query.encode()).members == tuple(dict.fromkeys(member.encode() for member in members))


def test_plus_is_a_space_in_a_query_and_2b_a_plus() -> None:
    assert parse("members", b"member=a+b%2Bc").members == (b"a b+c",)


def test_dots_travel_in_the_batch_route() -> None:
    assert parse("members", b"member=.&member=..").members == (b".", b"..")


def test_a_batch_has_1_to_100_different_members() -> None:
    hundred = "&".join(f"member={number}" for number in range(100))
    assert len(parse("members", f"{hundred}&member=0&member=99".encode()).members) == 100
    for query in (b"", b"x=1", f"{hundred}&member=100".encode()):
        with pytest.raises(InvalidParameter):
            parse("members", query)


@pytest.mark.parametrize("value", [b"", b"%00", b"%7f", b"a" * 257, b"%ff", b"%4", b"\xff"])
def test_what_is_no_id_is_refused_in_a_batch(value: bytes) -> None:
    with pytest.raises(InvalidMember):
        parse("members", b"member=ok&member=" + value)


def test_a_period_that_is_not_utf_8_is_an_invalid_period() -> None:
    with pytest.raises(InvalidPeriod):
        parse("top", b"period=%ff")
    assert parse("top", b"period=").period == ""


@given(
    st.binary(max_size=80), st.sampled_from(["top", "ranks", "members", "neighbors", "board", "catalogue", "member"])
)
def test_any_bytes_at_all_are_parsed_or_refused(query: bytes, route: Route) -> None:
    try:
        found = parse(route, query)
    except (InvalidParameter, InvalidMember, InvalidPeriod):
        return
    assert 1 <= found.first <= found.last < 2**53
    assert found.last - found.first < 100
    assert 0 <= found.above <= 50 >= found.below >= 0
    assert len(found.members) <= 100
