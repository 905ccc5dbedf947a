"""Ids: which request a line in the log belongs to.

Knows: X-Request-Id, traceparent (W3C Trace Context), and how a log record gets them.
Must not know: routes, leaderboards, where logs go.
"""

from __future__ import annotations

import logging
import re
from binascii import hexlify
from collections.abc import Callable
from contextvars import ContextVar

from gateway.http.answers import Scope, header

_WELL_FORMED = re.compile(rb"[A-Za-z0-9._:=+/@-]{1,128}")
"""What load balancers and tracing libraries send (``Root=1-67891233-abcdef012345``), and nothing that could break a
log line or a header."""

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


REQUEST_ID = "leaderboard.request_id"
"""Under this name the scope carries the id that the answer carries, once there is one."""

current: ContextVar[Scope | None] = ContextVar("current", default=None)
"""The scope of the request that the running task answers; None outside of one, and in flights, which are nobody's."""


class IdsFilter(logging.Filter):
    """Give every record ``request_id`` and ``traceparent`` (None outside of a request), unless it has its own."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the two attributes; keep every record."""
        scope = current.get()
        if "request_id" not in record.__dict__:
            record.request_id = None if scope is None else known_id(scope)
        if "traceparent" not in record.__dict__:
            record.traceparent = None if scope is None else traceparent(scope)
        return True


def request_id(scope: Scope, bits: Callable[[int], int]) -> bytes:
    """Return the id of a request: the caller's if it is well formed, else a new one of 128 bits from ``bits``."""
    found: bytes | None = scope.get(REQUEST_ID)
    if found is None:
        given = None
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                given = value if given is None else b""  # two ids are none
        found = given if given and well_formed(given) else new_id(bits)
        scope[REQUEST_ID] = found
    return found


def new_id(bits: Callable[[int], int]) -> bytes:
    """Return 128 random bits in hexadecimal."""
    return hexlify(bits(128).to_bytes(16, "big"))


def known_id(scope: Scope) -> str | None:
    """Return the id that the answer carries or the caller sent; an answer that caches share has none of its own."""
    found = scope.get(REQUEST_ID) or header(scope, b"x-request-id")
    return found.decode() if found is not None and well_formed(found) else None


def well_formed(given: bytes) -> bool:
    """Tell whether a caller's id may stand in our log and in our answer."""
    return _WELL_FORMED.fullmatch(given) is not None


def traceparent(scope: Scope) -> str | None:
    """Return the caller's trace if it is what the recommendation says, else None."""
    given = header(scope, b"traceparent")
    return given.decode() if given is not None and _TRACEPARENT.fullmatch(given) is not None else None
