"""Lifetime: how long one cache may keep one answer, and how HTTP writes that.

Knows: the directives of RFC 9111 §5.2.2, RFC 5861 and RFC 8246.
Must not know: boards, edges, which field the directives stand in.
"""

from __future__ import annotations

from typing import NamedTuple


class Lifetime(NamedTuple):
    """Whole seconds: fresh for ``ttl_s``, and how long after that it may be served stale, and why."""

    ttl_s: int
    stale_while_revalidate_s: int = 0
    stale_if_error_s: int = 0
    immutable: bool = False

    def directives(self) -> bytes:
        """Write the lifetime as in ``max-age=5, stale-while-revalidate=5``; a window of 0 is left out."""
        parts = [b"max-age=%d" % self.ttl_s]
        if self.stale_while_revalidate_s:
            parts.append(b"stale-while-revalidate=%d" % self.stale_while_revalidate_s)
        if self.stale_if_error_s:
            parts.append(b"stale-if-error=%d" % self.stale_if_error_s)
        if self.immutable:
            parts.append(b"immutable")
        return b", ".join(parts)
