"""Commands: requests as the bytes that go to a node.

Knows: RESP's request form, scripts and their digests.
Must not know: what any script means, which node gets it.

A rank read must not pay for packing: everything up to the last arguments is packed once per script and key.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, TypeAlias

_KEPT_PREFIXES = 4096
"""Per script. Keys of families are named by clients, so what is kept for them has a bound."""


def pack(*words: bytes) -> bytes:
    """Return one request: an array of bulk strings."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Script:
    """A Lua script over exactly one key: its source, its digest, and its packed beginnings.

    A script takes what it needs from ``redis.pcall`` and returns the error table it is given: the caller then sees
    the same error code on Redis 6.2 to 8, where an error that a script raises itself is wrapped differently by each.
    """

    __slots__ = ("_prefixes", "digest", "load", "source")

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self.digest = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        self.load = pack(b"SCRIPT", b"LOAD", self.source)
        self._prefixes: dict[int, dict[bytes, bytes]] = {}

    def prefix(self, key: bytes, arguments: int) -> bytes:
        """Return the request up to its arguments, kept for the next time."""
        kept = self._prefixes.setdefault(arguments, {})
        if len(kept) >= _KEPT_PREFIXES:
            kept.clear()
        words = pack(b"EVALSHA", self.digest, b"1", key)
        kept[key] = prefix = b"*%d" % (4 + arguments) + words[words.index(b"\r\n") :]
        return prefix

    def request(self, key: bytes, args: tuple[bytes, ...]) -> bytes:
        """Return the whole request."""
        try:
            prefix = self._prefixes[len(args)][key]
        except KeyError:
            prefix = self.prefix(key, len(args))
        if len(args) == 1:  # a rank read
            arg = args[0]
            return b"%b$%d\r\n%b\r\n" % (prefix, len(arg), arg)
        return prefix + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args])


class Command(NamedTuple):
    """One script call: one key, one reply, one instant."""

    script: Script
    key: bytes
    args: tuple[bytes, ...] = ()

    def packed(self) -> bytes:
        """Return the request's bytes."""
        return self.script.request(self.key, self.args)


class Plain(NamedTuple):
    """One plain command, its name before and its arguments behind the key."""

    name: bytes
    key: bytes
    args: tuple[bytes, ...] = ()

    def packed(self) -> bytes:
        """Return the request's bytes."""
        return pack(self.name, self.key, *self.args)


Request: TypeAlias = Command | Plain

ASKING = pack(b"ASKING")
PING = pack(b"PING")
READONLY = pack(b"READONLY")
INFO_REPLICATION = pack(b"INFO", b"replication")
INFO_SERVER = pack(b"INFO", b"server")
