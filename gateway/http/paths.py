"""Paths: the bytes of a request path become a route, a leaderboard's name and a member's id.

Knows: the routes under /v1, percent-encoding (RFC 3986), the limits of names and ids.
Must not know: queries, which leaderboards are configured, ASGI.

The path is split while it is still encoded, and each segment is decoded once: ``team%2Fann`` is one member. ``+`` is
itself here. Nothing is normalised, neither letters nor slashes.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.errors import InvalidLeaderboard, InvalidMember, InvalidParameter, NotFound, RequestError

Route = Literal["catalogue", "board", "top", "ranks", "members", "member", "neighbors"]

MEMBER_LIMIT_BYTES = 256
LEADERBOARD_LIMIT_BYTES = 128

_BAD_ENCODING = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_PLAIN = re.compile(rb"[!-$&-~]+")
"""Printable ASCII without a percent sign: what decodes to itself."""
_DOTS = (b".", b"..")
_PREFIX = [b"", b"v1", b"leaderboards"]


class Path(NamedTuple):
    """A route and the still encoded segments that it names."""

    route: Route
    leaderboard: bytes = b""
    member: bytes = b""


def parse(raw_path: bytes) -> Path:
    """Return the route of a raw path; raise ``NotFound``, or ``InvalidParameter`` if it cannot be decoded."""
    segments = raw_path.split(b"/")
    if segments[:3] != _PREFIX:
        segments = _canonical(segments, (0, 1, 2))
    count = len(segments)
    if segments[:3] != _PREFIX or count > 7:
        raise _no_route(segments)
    if count == 3:
        return Path("catalogue")
    if count == 4 and segments[3]:
        return Path("board", segments[3])
    return _below_board(segments, count)


def _below_board(segments: list[bytes], count: int) -> Path:
    if count >= 5:
        segments = _canonical(segments, (4, 6))
    match segments[3:]:
        case [name, b"top"]:
            return Path("top", name)
        case [name, b"ranks"]:
            return Path("ranks", name)
        case [name, b"members"]:
            return Path("members", name)
        case [name, b"members", member] if member:
            return Path("member", name, member)
        case [name, b"members", member, b"neighbors"] if member:
            return Path("neighbors", name, member)
        case _:
            raise _no_route(segments)


def _canonical(segments: list[bytes], places: tuple[int, ...]) -> list[bytes]:
    """Decode the fixed words of a path, which some clients encode too (``/v1/leaderboards/x/%74op``)."""
    return [
        _decoded(segment) if place in places and b"%" in segment else segment for place, segment in enumerate(segments)
    ]


def _no_route(segments: list[bytes]) -> RequestError:
    """Choose between a path that cannot be read (400) and one that leads nowhere (404)."""
    try:
        for segment in segments:
            _decoded(segment)
    except InvalidParameter as error:
        return error
    return NotFound()


def _decoded(segment: bytes) -> bytes:
    decoded = percent_decoded(segment)
    if decoded is None:
        raise InvalidParameter("The path is not percent-encoded UTF-8.")
    return decoded


def member_id(segment: bytes) -> bytes:
    """Decode a member's segment; raise ``InvalidMember`` if it is not 1 to 256 bytes of UTF-8 without controls."""
    if _PLAIN.fullmatch(segment) is None:
        decoded = percent_decoded(segment)
        if decoded is None:
            raise InvalidMember("The member id is not percent-encoded UTF-8.")
        segment = decoded
    check_member(segment)
    if segment in _DOTS:
        raise InvalidMember("The ids . and .. cannot travel in a path; ask for them with members?member=.")
    return segment


def check_member(member: bytes) -> None:
    """Raise ``InvalidMember`` unless the decoded id is 1 to 256 bytes without control characters."""
    if not 0 < len(member) <= MEMBER_LIMIT_BYTES or _CONTROL.search(member) is not None:
        raise InvalidMember


def leaderboard_name(segment: bytes) -> str:
    """Decode a leaderboard's segment; raise ``InvalidLeaderboard`` if it is not 1 to 128 bytes without controls."""
    decoded = segment if _PLAIN.fullmatch(segment) is not None else percent_decoded(segment)
    if decoded is None:
        raise InvalidLeaderboard("The leaderboard's name is not percent-encoded UTF-8.")
    if not 0 < len(decoded) <= LEADERBOARD_LIMIT_BYTES or _CONTROL.search(decoded) is not None or decoded in _DOTS:
        raise InvalidLeaderboard
    return decoded.decode()


def percent_decoded(segment: bytes) -> bytes | None:
    """Undo one percent-encoding; None if it is malformed or does not give UTF-8."""
    if _BAD_ENCODING.search(segment) is not None:
        return None
    decoded = unquote_to_bytes(segment)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return None
    return decoded
