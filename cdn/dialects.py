"""Dialects: the fields that particular edges read, beside or instead of the standard ones.

Knows: what nginx, Varnish, Fastly and Cloudflare call an edge's life and a tag.
Must not know: boards, and what the standard fields say.

Each edge takes its own fields away before the answer reaches a client; the shipped Varnish configuration does too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from cdn.lifetime import Lifetime

Dialect: TypeAlias = Literal["nginx", "varnish", "fastly", "cloudflare"]
Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Header fields as ASGI wants them: lower-case names, in order."""

VARNISH_TAGS = b"x-cache-tags"
"""A name of our own: Varnish's bans compare any stored field, so that no extra module is needed."""

TAG_FIELDS: tuple[bytes, ...] = (VARNISH_TAGS, b"surrogate-key", b"cache-tag")
EDGE_LIFE_FIELDS: tuple[bytes, ...] = (b"cdn-cache-control", b"surrogate-control", b"x-accel-expires")


def nginx(edge: Lifetime, _tags: Sequence[str]) -> Headers:
    """Return ``X-Accel-Expires``: nginx does not know RFC 9213. It takes the stale windows from ``Cache-Control``."""
    return [(b"x-accel-expires", b"%d" % edge.ttl_s)]


def varnish(_edge: Lifetime, tags: Sequence[str]) -> Headers:
    """Return the tags, each between spaces so that one never matches within another."""
    return [(VARNISH_TAGS, _joined(tags, " "))] if tags else []


def fastly(edge: Lifetime, tags: Sequence[str]) -> Headers:
    """Return ``Surrogate-Control``, which Fastly prefers to all others, and ``Surrogate-Key``."""
    fields = [(b"surrogate-control", edge.directives())]
    return [*fields, (b"surrogate-key", _joined(tags, " "))] if tags else fields


def cloudflare(_edge: Lifetime, tags: Sequence[str]) -> Headers:
    """Return ``Cache-Tag``; Cloudflare reads the life from ``CDN-Cache-Control``."""
    return [(b"cache-tag", _joined(tags, ","))] if tags else []


FIELDS: Mapping[Dialect, Callable[[Lifetime, Sequence[str]], Headers]] = MappingProxyType(
    {"nginx": nginx, "varnish": varnish, "fastly": fastly, "cloudflare": cloudflare}
)
"""By dialect: the fields for a storable answer, from the edge's lifetime and the tags."""


def _joined(tags: Sequence[str], separator: str) -> bytes:
    return separator.join(tags).encode("ascii")
