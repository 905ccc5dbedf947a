"""Answers: what the gateway sends, as values, and the sending of them.

Knows: ASGI's two messages, HEAD, the header fields that every answer has.
Must not know: leaderboards, caching policy, errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Peer = tuple[str, int] | None
Headers = list[tuple[bytes, bytes]]

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
CORS: tuple[tuple[bytes, bytes], ...] = (
    # Never the caller's origin: the answer is the same for everyone, and so is what an edge keeps.
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"ETag, Age, Retry-After, Cache-Status, Leaderboard-As-Of, Leaderboard-Stale",
    ),
)
NO_RANGES: tuple[bytes, bytes] = (b"accept-ranges", b"none")
CONTENT: tuple[tuple[bytes, bytes], ...] = (JSON, NO_RANGES)
"""What a body of ours says of itself; a 304 has none of it."""
METHODS = b"GET, HEAD, OPTIONS"
ALLOW: tuple[bytes, bytes] = (b"allow", METHODS)
PREFLIGHT: tuple[tuple[bytes, bytes], ...] = (
    CORS[0],
    (b"access-control-allow-methods", METHODS),
    (b"access-control-allow-headers", b"Authorization, If-None-Match"),
    (b"access-control-max-age", b"86400"),  # a day; Chromium keeps it two hours at most
)
CLOSE: tuple[bytes, bytes] = (b"connection", b"close")


EMPTY: Message = {"type": "http.response.body", "body": b""}


class Answer:
    """An answer as ASGI's two messages, and as the bytes that a server of ours sends at once.

    Answers are shared between requests, so nobody changes them.
    """

    __slots__ = ("_head", "body", "content", "start")

    def __init__(self, status: int, headers: Headers, content: bytes | None = None) -> None:
        """``headers`` says everything but the length; no content is no body at all (204, 304)."""
        self.content = content or b""
        if content is not None:
            headers = [*headers, (b"content-length", b"%d" % len(content))]
        self.start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        self.body: Message = EMPTY if content is None else {"type": "http.response.body", "body": content}
        self._head: bytes | None = None

    @property
    def status(self) -> int:
        """The status."""
        status: int = self.start["status"]
        return status

    @property
    def headers(self) -> Headers:
        """All fields, the length among them."""
        headers: Headers = self.start["headers"]
        return headers

    @property
    def head(self) -> bytes:
        """Status line and fields as HTTP/1.1; made when first asked for, as many answers are sent but once."""
        head = self._head
        if head is None:
            self._head = head = head_of(self.status, self.headers)
        return head


WHOLE = "leaderboard.whole"
"""Under this name our server protocol puts, among the scope's extensions, what sends a whole answer in one go."""

SendWhole = Callable[[bytes, bytes], bool]
"""Takes ``head_of`` an answer and its body; returns False if the answer has to be sent as messages after all."""


def head_of(status: int, headers: Headers) -> bytes:
    """Return the status line and the fields as HTTP/1.1, for ``SendWhole``: the server adds the date and the end."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())]
    lines += [b"%b: %b\r\n" % field for field in headers]
    return b"".join(lines)


def whole_of(scope: Scope) -> SendWhole | None:
    """Return the server's way of sending an answer in one go, if it has one."""
    extensions = scope.get("extensions")
    found: SendWhole | None = None if extensions is None else extensions.get(WHOLE)
    return found


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return a request header's value, several lines joined to one list; None if it was not sent."""
    values = [value for key, value in scope["headers"] if key == name]
    return b", ".join(values) if values else None
