"""Blobs as files: a header, the payload and a checksum, so that what is torn or foreign is told from what is whole.

Knows: the file format and file names.
Must not know: where files lie, what the payload means.

One file: ``LBGW`` and the format's version, the lengths of name and payload, ``as_of``, the name's three parts, the
payload, and 16 bytes of BLAKE2b over all before. The name inside is what counts: a file that was renamed is foreign.
"""

from __future__ import annotations

import re
import struct
from hashlib import blake2b

from gateway.lastknown.store import SHELVES, Kept, Name

MAGIC = b"LBGW\x01"
SUFFIX = ".board"
_HEADER = struct.Struct("!5sIId")
_CHECKSUM_BYTES = 16
_SLUG_LIMIT = 60


def pack(name: Name, blob: bytes, as_of: float) -> bytes:
    """Return the file's bytes."""
    words = _words(name)
    body = b"%b%b%b" % (_HEADER.pack(MAGIC, len(words), len(blob), as_of), words, blob)
    return body + _checksum(body)


def unpack(data: bytes) -> tuple[Name, Kept] | None:
    """Return what a file holds; None if it is torn, foreign or of another version."""
    if len(data) < _HEADER.size + _CHECKSUM_BYTES or not data.startswith(MAGIC):
        return None
    _, words_len, blob_len, as_of = _HEADER.unpack_from(data)
    end = _HEADER.size + words_len + blob_len
    if len(data) != end + _CHECKSUM_BYTES or data[end:] != _checksum(data[:end]):
        return None
    shelf, leaderboard, label = data[_HEADER.size : _HEADER.size + words_len].decode().split("\x1f")
    if shelf not in SHELVES:
        return None
    return Name(SHELVES[shelf], leaderboard, label), Kept(data[end - blob_len : end], as_of)


def path_of(name: Name) -> str:
    """Return the relative path of a name's file: readable, and safe for any leaderboard on any file system.

    Names may hold slashes, be longer than a file name, or differ in case only; the hash tells them apart.
    """
    digest = blake2b(_words(name), digest_size=12).hexdigest()
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name.leaderboard} {name.label}".lower()).strip("-")[:_SLUG_LIMIT]
    return f"{name.shelf}/{slug or 'board'}.{digest}{SUFFIX}"


def _words(name: Name) -> bytes:
    # U+001F stands in no leaderboard's name and in no label: both refuse control characters.
    return "\x1f".join(name).encode()


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
