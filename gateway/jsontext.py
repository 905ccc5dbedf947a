"""JSON text: members, numbers, instants and profiles as the contract writes them.

Knows: the JSON of single values.
Must not know: bodies, snapshots, who asks.
"""

from __future__ import annotations

import json
from functools import lru_cache
from json.encoder import encode_basestring
from math import isinf
from time import gmtime, strftime

PROFILE_LIMIT_BYTES = 1024


def text_of(member: bytes) -> str:
    r"""Return the member as text; bytes that are not UTF-8 appear as ``\xNN``."""
    return member.decode("utf-8", "backslashreplace")


def json_string(member: bytes) -> bytes:
    r"""Return the member as a JSON string; bytes that are not UTF-8 appear as ``\xNN``."""
    return encode_basestring(text_of(member)).encode()


def number(score: float) -> bytes:
    """Return the score as JSON: whole numbers without exponent or fraction, others in the shortest form that reads
    back to the same double, infinities as the strings "inf" and "-inf", never a negative zero."""
    return number_text(score).encode()


def number_text(score: float) -> str:
    """Return ``number`` as text."""
    if isinf(score):
        return '"inf"' if score > 0 else '"-inf"'
    whole = int(score)
    return str(whole) if whole == score else repr(score)


def rfc3339(wall: float) -> bytes:
    """Return wall seconds as ``2026-11-30T20:28:00.123Z``, cut (not rounded) to milliseconds."""
    return _millisecond(round(wall * 1_000_000) // 1000)


@lru_cache(maxsize=256)  # a body and its header field say the same instant, and so do reads of the same millisecond
def _millisecond(millis: int) -> bytes:
    return b"%b.%03dZ" % (_second(millis // 1000), millis % 1000)


@lru_cache(maxsize=64)  # calendar arithmetic is most of the cost, and a second's answers share it
def _second(seconds: int) -> bytes:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds)).encode()


def profile_json(value: bytes | None) -> bytes:
    """Return a stored profile as JSON: objects and arrays as they are, all else a string, null for none.

    Null also for values over 1 KiB. A value is embedded only if strict JSON reads it whole (no NaN, no duplicates of
    structure), so that one bad profile never breaks the page it is on.
    """
    if value is None or len(value) > PROFILE_LIMIT_BYTES:
        return b"null"
    if value[:1] in {b"{", b"["}:
        try:
            parsed = json.loads(value.decode(), parse_constant=_refuse_constant)
            return json.dumps(parsed, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, RecursionError):
            pass
    return json_string(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
