"""Fingerprint: tells whether a snapshot kept elsewhere was made of the same board as configured here.

Knows: what of a board's settings decides its rows.
Must not know: where snapshots are kept.

A board whose key, order or ties changed must not come back with its former rows, nor be shared with instances that
have not been given the change yet.
"""

from __future__ import annotations

from hashlib import blake2b

from gateway.model import Target

FINGERPRINT_BYTES = 8


def fingerprint(target: Target) -> bytes:
    """Return 8 bytes that differ where the same name would give other rows."""
    digest = blake2b(digest_size=FINGERPRINT_BYTES)
    board = target.board
    for part in (target.key, target.profiles_key or b"", board.order.encode(), board.ties.encode()):
        digest.update(b"%d:%b" % (len(part), part))
    return digest.digest()
