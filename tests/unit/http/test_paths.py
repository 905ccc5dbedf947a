"""Raw paths become routes, names and ids: split while encoded, decoded once, nothing normalised."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidLeaderboard, InvalidMember, InvalidParameter, NotFound
from gateway.http.paths import Path, leaderboard_name, member_id, parse

BOARD = b"/v1/leaderboards/downloads"
ALLOWED = st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\x7f"])
IDS = st.text(ALLOWED, min_size=1, max_size=256).filter(
    lambda text: len(text.encode()) <= 256 and text not in (".", "..")
)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/v1/leaderboards", Path("catalogue")),
        (BOARD, Path("board", b"downloads")),
        (BOARD + b"/top", Path("top", b"downloads")),
        (BOARD + b"/ranks", Path("ranks", b"downloads")),
        (BOARD + b"/members", Path("members", b"downloads")),
        (BOARD + b"/members/ann", Path("member", b"downloads", b"ann")),
        (BOARD + b"/members/ann/neighbors", Path("neighbors", b"downloads", b"ann")),
        (BOARD + b"/members/neighbors", Path("member", b"downloads", b"neighbors")),
        (BOARD + b"/members/neighbors/neighbors", Path("neighbors", b"downloads", b"neighbors")),
        (b"/v1/leaderboards/top/top", Path("top", b"top")),
        (b"/v1/leaderboards/top", Path("board", b"top")),
        (b"/%761/leaderboards/x/%74op", Path("top", b"x")),
        (BOARD + b"/%6Dembers/a%2Fb", Path("member", b"downloads", b"a%2Fb")),
    ],
)
def test_every_route_is_found(raw: bytes, path: Path) -> None:
    assert parse(raw) == path


@pytest.mark.parametrize(
    "raw",
    [
        b"/",
        b"/v1",
        b"/v1/",
        b"/v1/leaderboards/",
        BOARD + b"/",
        BOARD + b"/top/",
        BOARD + b"/members/",
        BOARD + b"/members/ann/",
        BOARD + b"/members/ann/neighbors/",
        BOARD + b"/members/ann/rank",
        BOARD + b"/members/team/ann",
        BOARD + b"/Top",
        b"//v1/leaderboards",
        b"/v2/leaderboards",
        b"/v1/leaderboards%2Fdownloads",
        BOARD + b"/members//neighbors",
    ],
)
def test_a_trailing_slash_or_an_unknown_path_leads_nowhere(raw: bytes) -> None:
    with pytest.raises(NotFound):
        parse(raw)


@pytest.mark.parametrize("raw", [b"/%zz", b"/v1/leaderboards/x/%ff", BOARD + b"/members/a/b%", b"/%c3%28"])
def test_a_path_that_cannot_be_decoded_is_refused_rather_than_not_found(raw: bytes) -> None:
    with pytest.raises(InvalidParameter):
        parse(raw)


@given(IDS)
def test_every_allowed_id_survives_one_encoding(member: str) -> None:
    segment = quote(member, safe="").encode()
    assert member_id(segment) == member.encode()
    assert parse(BOARD + b"/members/" + segment + b"/neighbors").member == segment


@given(IDS)
def test_an_id_is_decoded_exactly_once(member: str) -> None:
    once = quote(member, safe="")
    twice = quote(once, safe="").encode()
    if len(once) <= 256:
        assert member_id(twice) == once.encode()
    else:
        with pytest.raises(InvalidMember):
            member_id(twice)


def test_plus_is_itself_in_a_path() -> None:
    assert member_id(b"a+b%20c") == b"a+b c"
    assert leaderboard_name(b"a+b") == "a+b"


def test_composed_and_decomposed_letters_are_different_members() -> None:
    assert member_id("é".encode()) != member_id("e\u0301".encode())


@pytest.mark.parametrize("size", [256, 257])
@pytest.mark.parametrize("unit", ["a", "%F0%9F%98%80"])
def test_d17_an_id_has_256_bytes_after_decoding_and_not_one_more(size: int, unit: str) -> None:
    segment = unit.encode() * (256 if unit == "a" else 64) + b"b" * (size - 256)
    if size == 256:
        assert len(member_id(segment)) == 256
    else:
        with pytest.raises(InvalidMember):
            member_id(segment)


@pytest.mark.parametrize(
    "segment", [b"", b"%00", b"a%1Fb", b"%7f", b"%0a", b"%", b"%4", b"%4g", b"%ff", b"%ed%a0%80", b"%c0%af", b"\xff"]
)
def test_what_is_no_id_is_refused(segment: bytes) -> None:
    with pytest.raises(InvalidMember):
        member_id(segment)


@pytest.mark.parametrize("segment", [b".", b"..", b"%2e", b"%2E.", b".%2e"])
def test_dots_alone_cannot_travel_in_a_path(segment: bytes) -> None:
    with pytest.raises(InvalidMember, match="members\\?member="):
        member_id(segment)
    with pytest.raises(InvalidLeaderboard):
        leaderboard_name(segment)
    assert member_id(b"..." + segment)


@pytest.mark.parametrize("segment", [b"", b"a" * 129, b"%0d", b"%zz", b"%ff"])
def test_what_is_no_name_is_refused(segment: bytes) -> None:
    with pytest.raises(InvalidLeaderboard):
        leaderboard_name(segment)


def test_a_name_has_128_bytes_after_decoding() -> None:
    assert len(leaderboard_name(b"%C3%A9" * 64).encode()) == 128


@given(st.binary(max_size=60))
def test_any_bytes_at_all_are_answered_and_never_crash(raw: bytes) -> None:
    try:
        parse(b"/v1/leaderboards/" + raw)
        member_id(raw)
    except (NotFound, InvalidParameter, InvalidMember):
        pass
