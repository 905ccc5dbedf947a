"""Cache-Status: how the gateway's own store handled a read, in the words of RFC 9211.

Knows: RFC 9211's parameters, the ways in which a read ends.
Must not know: the store, snapshots, who sends the field.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

CACHE = b"leaderboard-gateway"
"""The name that this cache gives itself (RFC 9211 §2: each cache adds a member with its name)."""

Ended: TypeAlias = Literal["hit", "joined", "miss", "stale", "failed"]


def cache_status(outcome: Ended, *, stored: bool = True, age_s: float = 0.0) -> bytes:
    """Return the field's value for a read that ended like this.

    ``stored``: whether the answer went into the store (not with a ``ttl`` of 0). ``age_s``: for ``stale``, how long
    ago the answer's data was last known to be in step; at least 1 is said, since a ``ttl`` of 0 would not mean
    stale (RFC 9211 §2.4).
    """
    if outcome == "hit":
        return CACHE + b"; hit"
    if outcome == "stale":
        return CACHE + b"; hit; ttl=-%d" % max(1, int(age_s))
    # RFC 9211 §2.2: forwarded because nothing was stored under this URI; §2.6: together with others.
    forwarded = CACHE + b"; fwd=uri-miss"
    if outcome == "joined":
        return forwarded + b"; collapsed"
    return forwarded + b"; stored" if stored and outcome == "miss" else forwarded
