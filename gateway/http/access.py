"""Access: one log line a request, for all, one in a hundred, or none.

Knows: what is worth knowing of a request after it was answered.
Must not know: how it was answered, where log lines go or what they look like.
"""

from __future__ import annotations

import logging
from typing import Literal

from gateway.http.answers import Scope, header
from gateway.http.ids import RequestIds, current, traceparent, well_formed

AccessMode = Literal["off", "sampled", "on"]
SAMPLE = 100
_FORWARDED_LIMIT = 64

log = logging.getLogger("gateway.access")


class AccessLog:
    """Write the access log; ``sampled`` writes the first of every hundred requests and every 5xx.

    ``client`` is the peer of the connection and nothing else. What a proxy, or anyone, says in ``X-Real-IP`` is
    logged as what was said, under ``forwarded``: only the reader knows whether the peer is to be trusted.
    """

    def __init__(self, mode: AccessMode) -> None:
        self._every = {"off": 0, "sampled": SAMPLE, "on": 1}[mode]
        self._seen = 0

    def __bool__(self) -> bool:
        """Whether anything is ever written."""
        return self._every > 0

    def wants(self, status: int) -> bool:
        """Count one answer and tell whether it is to be written."""
        self._seen += 1
        return self._every == 1 or status >= 500 or self._seen % self._every == 1

    def write(self, scope: Scope, *, route: str, status: str, outcome: str | None, seconds: float) -> None:
        """Write one line: the message for people, the same as fields for machines."""
        fields = {
            "client": _client(scope),
            "forwarded": _forwarded(scope),
            "method": scope["method"],
            "target": target(scope),
            "route": route,
            "status": status,
            "outcome": outcome,
            "duration_ms": round(seconds * 1000, 3),
        }
        ids = current.get() or ids_of(scope)
        fields |= {"request_id": ids.request_id, "traceparent": ids.traceparent}
        log.info("%s %s %s %s", fields["client"], scope["method"], fields["target"], status, extra=fields)


def target(scope: Scope) -> str:
    """Return the request target as it was sent, which is ASCII without spaces."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw + b"?" + query if query else raw).decode("ascii", "backslashreplace")


def ids_of(scope: Scope) -> RequestIds:
    """Return the ids that the caller sent; an answer that caches share gets none of its own."""
    given = header(scope, b"x-request-id")
    return RequestIds(
        given.decode() if given is not None and well_formed(given) else None, traceparent(header(scope, b"traceparent"))
    )


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return None if client is None else str(client[0])


def _forwarded(scope: Scope) -> str | None:
    said = header(scope, b"x-real-ip")
    return None if said is None else said[:_FORWARDED_LIMIT].decode("ascii", "backslashreplace")
