"""Exchange: one request on its way to an answer, for those that the hot path does not know.

Knows: what of a request is wanted more than once, the method rules, how an answer is sent.
Must not know: routes beyond their names, how anything is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.errors import MethodNotAllowed
from gateway.http import ids
from gateway.http.answers import CLOSE, EMPTY, Answer, Scope, Send, header, whole_of
from gateway.http.tally import Label
from gateway.model import Outcome

TRANSPORT = "leaderboard.transport"
"""Under this name our server protocol puts, among the scope's extensions, what knows if the client is still there."""


class Exchange:
    """One request: what was asked, under which ids, and what became known of it while it was answered."""

    __slots__ = (
        "_bits",
        "_gone",
        "_request_id",
        "_send",
        "label",
        "last",
        "method",
        "outcome",
        "scope",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, send: Send, started: float, bits: Callable[[int], int]) -> None:
        self.scope = scope
        self._send = send
        self.started = started
        self._bits = bits
        self._gone = False
        self.method: str = scope["method"]
        self.label: Label = "unmatched"
        self.outcome: Outcome | None = None
        self.last = False
        """Whether the connection ends with this answer."""
        self.status = 0
        """The status sent; 0 before."""
        ids.current.set(scope)

    @property
    def request_id(self) -> bytes:
        """The caller's X-Request-Id if there is one and it is well formed, else a new one."""
        return ids.request_id(self.scope, self._bits)

    def asks_options(self) -> bool:
        """Tell OPTIONS from what reads; raise ``MethodNotAllowed`` for all else."""
        if self.method not in {"GET", "HEAD", "OPTIONS"}:
            raise MethodNotAllowed
        return self.method == "OPTIONS"

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks what it may send (Fetch §3.3.2)."""
        return header(self.scope, b"access-control-request-method") is not None

    async def reply(self, answer: Answer) -> None:
        """Send the answer; HEAD gets its fields, length included, and no body (RFC 9110 §9.3.2)."""
        self.status = answer.status
        self._gone = has_left(self.scope)
        whole = None if self.last or self.method == "HEAD" else whole_of(self.scope)
        if whole is not None and whole(answer.head, answer.content):
            return
        start = {**answer.start, "headers": [*answer.headers, CLOSE]} if self.last else answer.start
        try:
            await self._send(start)
            await self._send(EMPTY if self.method == "HEAD" else answer.body)
        except (OSError, asyncio.CancelledError):
            # The client has left, as a server may say it (ASGI 2.4), or will never take it all and the server stops.
            self._gone = True

    @property
    def client_is_gone(self) -> bool:
        """Whether nobody took the answer, as far as the server can tell."""
        return self._gone


def has_left(scope: Scope) -> bool:
    """Tell whether the client is gone, as far as the server knows.

    Only to be asked before anything is sent: afterwards a transport is closing for good reasons, too.
    """
    extensions = scope.get("extensions")
    transport = None if extensions is None else extensions.get(TRANSPORT)
    return transport is not None and bool(transport.is_closing())
