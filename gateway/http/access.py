"""Access: one log line a request, for all of them, for one in a hundred, or none.

Knows: what is worth knowing of a request after it was answered.
Must not know: how it was answered, where log lines go or what they look like.
"""

from __future__ import annotations

import logging
from typing import Literal

from gateway.http.answers import Scope, header
from gateway.http.ids import known_id, traceparent

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
        self._every = SAMPLE if mode == "sampled" else 1
        self.enabled = mode != "off"
        """Whether anything is ever to be written; whoever asks ``wants`` asks this first, once."""
        self._seen = 0

    def wants(self, status: int) -> bool:
        """Count one answer and tell whether it is to be written."""
        self._seen += 1
        return self._every == 1 or status >= 500 or self._seen % self._every == 1

    def write(self, scope: Scope, *, route: str, status: int, outcome: str | None, seconds: float) -> None:
        """Write one line: the message for people, the same as fields for machines."""
        fields = {
            "client": _client(scope),
            "forwarded": _forwarded(scope),
            "method": scope["method"],
            "target": target(scope),
            "route": route,
            "status": status or "client_closed",
            "outcome": outcome,
            "duration_ms": round(seconds * 1000, 3),
        }
        fields["request_id"], fields["traceparent"] = known_id(scope), traceparent(scope)
        log.info("%s %s %s %s", fields["client"], scope["method"], fields["target"], status, extra=fields)


def target(scope: Scope) -> str:
    """Return the request target as it was sent, which is ASCII without spaces."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (raw + b"?" + query if query else raw).decode("ascii", "backslashreplace")


def _client(scope: Scope) -> str | None:
    client = scope.get("client")
    return None if client is None else str(client[0])


def _forwarded(scope: Scope) -> str | None:
    said = header(scope, b"x-real-ip")
    return None if said is None else said[:_FORWARDED_LIMIT].decode("ascii", "backslashreplace")
