"""HTTP/1.1 as a generator needs it: requests as prepared bytes, and of an answer its status, length and validator.

Knows: RFC 9112's framing, as far as a well-behaved server uses it.
Must not know: sockets, routes, JSON.

A full client costs ten times what the gateway's cached answer does, and would be what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

BODILESS = frozenset({204, 304})


class Unreadable(ValueError):
    """What came back is no answer that this reader knows; the connection cannot be used further."""


class Answer(NamedTuple):
    """The head of one answer: its status, where its body begins, and where the answer ends (in bytes)."""

    status: int
    body_at: int
    end: int
    closing: bool


def answer_in(data: bytes | bytearray) -> Answer | None:
    """Read an answer's head from the bytes received so far; None while it is not whole. The body may be under way.

    Raises ``Unreadable`` for what is not HTTP/1.1, and for a body of unknown length.
    """
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        if len(data) >= 5 and data[:5] != b"HTTP/":
            raise Unreadable("not an HTTP answer")
        return None
    try:
        status = int(data[9:12])
    except ValueError as error:
        raise Unreadable("no status") from error
    body_at = head_end + 4
    closing = data.find(b"onnection: close\r\n", 0, body_at) >= 0
    if status in BODILESS:
        return Answer(status, body_at, body_at, closing)
    return Answer(status, body_at, body_at + content_length(data, body_at), closing)


def content_length(data: bytes | bytearray, body_at: int) -> int:
    """Return the body's length as its head states it."""
    at = data.find(b"content-length:", 0, body_at)
    if at < 0:  # other servers write it in capitals
        at = bytes(data[:body_at]).lower().find(b"content-length:")
    if at < 0:
        raise Unreadable("a body of unknown length")
    return int(data[at + 15 : data.find(b"\r", at)])


def field_of(data: bytes | bytearray, name: bytes) -> bytes | None:
    """Return a header field's value from the head of an answer; None if it is absent."""
    head = bytes(data[: data.find(b"\r\n\r\n") + 2])
    at = head.lower().find(b"\r\n" + name.lower() + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    return head[start : head.find(b"\r\n", start)].strip()


def get(host: str, target: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a GET request as a game client sends it."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Accept: application/json", "User-Agent: game-client"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def segment(text: str) -> str:
    """Return a leaderboard's or member's id as one path segment, percent-encoded once."""
    return quote(text, safe="")


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of a base URL."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url!r}: the generator speaks plain http://host:port")
    return parts.hostname, parts.port or 80
