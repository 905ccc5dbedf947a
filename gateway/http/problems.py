"""Problems: every error, ours or not, becomes one document (RFC 9457).

Knows: the error tree, the form of the document, what goes to the log instead of to the client.
Must not know: routes, ASGI, cache headers.
"""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from gateway.errors import GatewayError, MemberNotFound

MEDIA_TYPE = b"application/problem+json"
TYPE_PREFIX = "/openapi.json#/components/responses/"
"""A problem's ``type`` leads to its description; RFC 9457 §3.1.1 asks for a full path where it is relative."""

_log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """A problem, ready to be sent.

    ``retry_after_s`` is whole seconds, ``as_of`` wall seconds, ``stale_age_s`` the seconds since then if it is to be
    marked stale; each may be None.
    """

    status: int
    code: str
    body: bytes
    retry_after_s: int | None = None
    as_of: float | None = None
    stale_age_s: float | None = None


def document(kind: type[GatewayError], detail: str = "") -> bytes:
    """Return the JSON of this kind of error."""
    fields = {
        "type": TYPE_PREFIX + kind.code,
        "title": kind.title,
        "status": kind.status,
        "detail": detail or kind.default_detail,
        "code": kind.code,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def problem_of(error: BaseException) -> Problem:
    """Translate an error for the client; one that is not of our tree is logged here, once, and shown as nobody's.

    This is the one place where errors become HTTP.
    """
    if not isinstance(error, GatewayError):
        _log.error("an error that is nobody's fault but the gateway's", exc_info=error)
        error = GatewayError()
    kind = type(error)
    retry_after_s = getattr(error, "retry_after_s", None) if kind.status == 503 else None
    as_of, stale_age_s = (error.as_of, error.stale_age_s) if isinstance(error, MemberNotFound) else (None, None)
    return Problem(kind.status, kind.code, document(kind, error.detail), retry_after_s, as_of, stale_age_s)
