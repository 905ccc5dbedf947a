"""Ids: which request a line in the log belongs to.

Knows: X-Request-Id, traceparent (W3C Trace Context), and how a log record gets them.
Must not know: routes, leaderboards, where logs go.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

_WELL_FORMED = re.compile(rb"[A-Za-z0-9._:=+/@-]{1,128}")
"""What load balancers and tracing libraries send (``Root=1-67891233-abcdef012345``), and nothing that could break a
log line or a header."""

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Ids(Protocol):
    """The ids of one request, worked out when somebody asks."""

    @property
    def request_id(self) -> bytes:
        """The caller's id if it was well formed, else one of our own."""
        ...

    @property
    def traceparent(self) -> str | None:
        """The caller's trace, if it was well formed."""
        ...


current: ContextVar[Ids | None] = ContextVar("current", default=None)
"""The request that the running task answers; None outside of one, and in flights, which belong to nobody."""


class IdsFilter(logging.Filter):
    """Give every record ``request_id`` and ``traceparent`` (None outside of a request), unless it has its own."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the two attributes; keep every record."""
        ids = current.get()
        if "request_id" not in record.__dict__:
            record.request_id = None if ids is None else ids.request_id.decode()
        if "traceparent" not in record.__dict__:
            record.traceparent = None if ids is None else ids.traceparent
        return True


def request_id(given: bytes | None, bits: Callable[[int], int]) -> bytes:
    """Return the caller's id if it is well formed, else a new one of 128 bits from ``bits``."""
    if given is not None and well_formed(given):
        return given
    return b"%032x" % bits(128)


def well_formed(given: bytes) -> bool:
    """Tell whether a caller's id may stand in our log and in our answer."""
    return _WELL_FORMED.fullmatch(given) is not None


def traceparent(given: bytes | None) -> str | None:
    """Return the field as text if it is what the recommendation says, else None."""
    if given is None or _TRACEPARENT.fullmatch(given) is None:
        return None
    return given.decode()
