"""Params: the bytes of a query string become checked values.

Knows: the parameters of every route, form encoding as browsers send it, their bounds.
Must not know: leaderboards, Redis, ASGI.

``+`` is a space and ``%2B`` a plus. Unknown parameters are ignored, whatever they hold; a known one given twice is
refused (``member`` aside), since two caches in a row could disagree about which one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.errors import InvalidMember, InvalidParameter, InvalidPeriod
from gateway.http.paths import Route, check_member, percent_decoded
from gateway.model import TOP_LIMIT

RANK_LIMIT = 2**53 - 1
NEIGHBORS_LIMIT = 50
NEIGHBORS_DEFAULT = 5
BATCH_LIMIT = 100

KNOWN: dict[Route, frozenset[bytes]] = {
    "catalogue": frozenset(),
    "board": frozenset({b"period"}),
    "top": frozenset({b"period", b"limit"}),
    "ranks": frozenset({b"period", b"from", b"to"}),
    "member": frozenset({b"period"}),
    "neighbors": frozenset({b"period", b"above", b"below"}),
    "members": frozenset({b"period", b"member"}),
}
"""Which parameters each route reads; all others are ignored there."""

_KEPT_LENGTH_BYTES = 128
_DIGITS = re.compile(r"[0-9]+")


class Params(NamedTuple):
    """What a query string says, in the terms of ``model.Query``; routes read only what they know."""

    period: str | None = None
    first: int = 1
    last: int = TOP_LIMIT
    above: int = NEIGHBORS_DEFAULT
    below: int = NEIGHBORS_DEFAULT
    members: tuple[bytes, ...] = ()


def parse(route: Route, query: bytes) -> Params:
    """Return the route's parameters; raise ``InvalidParameter``, ``InvalidMember`` or ``InvalidPeriod``."""
    if len(query) <= _KEPT_LENGTH_BYTES:
        return _parse_short(route, query)
    return _parse(route, query)


def knows_all(route: Route, query: bytes) -> bool:
    """Return whether a query string says nothing that the route ignores."""
    return not query or (all(query.split(b"&")) and all(name in KNOWN[route] for name, _ in _pairs(query)))


def _parse(route: Route, query: bytes) -> Params:
    given, members = _collect(KNOWN[route], query)
    period = _period(given.get(b"period"))
    if route == "top":
        return Params(period, last=_integer(given, b"limit", 1, TOP_LIMIT, default=TOP_LIMIT))
    if route == "ranks":
        return _ranks(given, period)
    if route == "neighbors":
        above = _integer(given, b"above", 0, NEIGHBORS_LIMIT, default=NEIGHBORS_DEFAULT)
        below = _integer(given, b"below", 0, NEIGHBORS_LIMIT, default=NEIGHBORS_DEFAULT)
        return Params(period, above=above, below=below)
    if route == "members":
        return Params(period, members=_batch(members))
    return Params(period)


_parse_short = lru_cache(maxsize=1024)(_parse)
"""Clients ask with a handful of different queries; errors are not kept."""


def _collect(known: frozenset[bytes], query: bytes) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the known parameters but ``member``, still encoded, and the ``member`` ones in order."""
    given: dict[bytes, bytes] = {}
    members: list[bytes] = []
    for name, value in _pairs(query):
        if name not in known:
            continue
        if name == b"member":
            members.append(value)
        elif name in given:
            raise InvalidParameter(f"The parameter {name.decode()} is given twice.")
        else:
            given[name] = value
    return given, members


def _pairs(query: bytes) -> Iterator[tuple[bytes, bytes]]:
    for pair in filter(None, query.split(b"&")):
        name, _, value = pair.partition(b"=")
        if b"%" in name or b"+" in name:
            name = unquote_to_bytes(name.replace(b"+", b" "))
        yield name, value


def _decode(value: bytes) -> bytes | None:
    """Undo the form encoding; None if it is malformed or does not give UTF-8."""
    if b"%" not in value and value.isascii():
        return value.replace(b"+", b" ")
    return percent_decoded(value.replace(b"+", b" "))


def _period(value: bytes | None) -> str | None:
    if value is None:
        return None
    decoded = _decode(value)
    if decoded is None:
        raise InvalidPeriod("The period is not percent-encoded UTF-8.")
    return decoded.decode()


def _integer(given: dict[bytes, bytes], name: bytes, low: int, high: int, *, default: int | None = None) -> int:
    value = given.get(name)
    if value is None:
        if default is not None:
            return default
        raise InvalidParameter(f"The parameter {name.decode()} is required.")
    decoded = _decode(value)
    text = "" if decoded is None else decoded.decode()
    # Without its leading zeros a number within bounds is short; int() of endless digits would be slow, then refuse.
    if _DIGITS.fullmatch(text) is None or len(text.lstrip("0")) > 16 or not low <= int(text[-32:]) <= high:
        raise InvalidParameter(f"The parameter {name.decode()} is a whole number from {low} to {high}.")
    return int(text[-32:])


def _ranks(given: dict[bytes, bytes], period: str | None) -> Params:
    first = _integer(given, b"from", 1, RANK_LIMIT)
    last = _integer(given, b"to", 1, RANK_LIMIT)
    if last < first:
        raise InvalidParameter("The parameter to is not below from.")
    if last - first >= TOP_LIMIT:
        raise InvalidParameter(f"One answer holds at most {TOP_LIMIT} ranks.")
    return Params(period, first=first, last=last)


def _batch(values: list[bytes]) -> tuple[bytes, ...]:
    distinct = tuple(dict.fromkeys(map(_member, values)))
    if not 0 < len(distinct) <= BATCH_LIMIT:
        raise InvalidParameter(f"The parameter member is given for 1 to {BATCH_LIMIT} members.")
    return distinct


def _member(value: bytes) -> bytes:
    decoded = _decode(value)
    if decoded is None:
        raise InvalidMember("A member id is not percent-encoded UTF-8.")
    check_member(decoded)
    return decoded
