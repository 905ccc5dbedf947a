"""Reading: what a file holds, but never more of it than it should be, and never waiting for ever.

Knows: that a path may name a pipe that nobody writes into, or a device without an end.
Must not know: what is in the file, or what is read it for.
"""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

PATIENCE_S = 10.0
"""How long a pipe may say nothing: ``--config <(decrypt gateway.toml)`` takes a moment."""

_PIECE = 65_536


def content(path: Path, *, most: int) -> bytes:
    """Read a file of at most so many bytes. Raises OSError, and ValueError for a path that no file can have."""
    found = bytearray()
    with open(path, "rb", buffering=0, opener=_open) as file:
        ready = select.poll()
        ready.register(file, select.POLLIN)
        while len(found) <= most:
            if not ready.poll(PATIENCE_S * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"nothing came out of it for {PATIENCE_S:g} s")
            piece = file.read(_PIECE)
            if piece == b"":
                return bytes(found)
            found += piece or b""  # None: it was not ready after all
    raise OSError(errno.EFBIG, f"it holds more than {most} bytes")


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer would wait for one
