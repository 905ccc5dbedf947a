"""Policy: what caches may do with each kind of answer, as header fields.

Knows: HTTP caching (RFC 9111), stale windows (RFC 5861), targeted fields for edges (RFC 9213), immutable (RFC 8246).
Must not know: clocks, requests, bodies, who sends the fields.

Rules that hold for everything here:

- ``public`` in every storable answer. Game clients send ``Authorization`` with every request, and a shared cache may
  reuse such an answer only if a directive says so (RFC 9111 §3.5).
- Never ``s-maxage``: it has the meaning of ``proxy-revalidate`` (RFC 9111 §5.2.2.10), which forbids the stale
  serving that is promised beside it. Edges get a field of their own instead (RFC 9213 §2.1).
- Whole seconds: ``delta-seconds`` has no fraction (RFC 9111 §1.2.2).
- No ``Age``: the gateway is the origin (RFC 9111 §5.1), and its own delay is part of the published bound.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cdn.dialects import FIELDS, Dialect, Headers
from cdn.lifetime import Lifetime

STALE_LIFE_S = 2
"""How long an answer that is stale already may be kept: long enough for edges to go on collapsing requests."""

SHORT_LIFE_S = 1

FINISHED_CLIENT_S = 3600
FINISHED_EDGE_S = 86_400
IMMUTABLE_S = 31_536_000
"""A year, the longest life that caches are known to take at its word."""

NOT_FOUND_LIFE_S = 5

NO_STORE: tuple[bytes, bytes] = (b"cache-control", b"no-store")
"""RFC 9111 §5.2.2.5: neither private nor shared caches keep any part of it."""

PRIVATE_NO_STORE: tuple[bytes, bytes] = (b"cache-control", b"private, no-store")
"""The same for Fastly, whose standard configuration obeys ``private`` but not ``no-store``."""

VARY: tuple[bytes, bytes] = (b"vary", b"Accept-Encoding")
"""RFC 9110 §12.5.5. Never anything else: the answer takes nothing but its coding from the request's fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """How long the answers of one board may be kept: whole seconds, none below 0. Hashable.

    ``client_ttl_s`` and ``edge_ttl_s``: how long a client and an edge hold an answer as fresh.
    ``stale_while_revalidate_s``: how long after that each serves it while it fetches a new one (RFC 5861 §3).
    ``stale_if_error_s``: how long after that each serves it when the gateway does not answer (RFC 5861 §4).
    ``dialects``: the edges that get fields of their own beside the standard ones.
    """

    client_ttl_s: int = 2
    edge_ttl_s: int = 5
    stale_while_revalidate_s: int = 5
    stale_if_error_s: int = 3600
    dialects: tuple[Dialect, ...] = ()

    @property
    def horizon_s(self) -> int:
        """From this distance on, a boundary shortens nothing: a client behind an edge, both stale to the last."""
        window = max(self.stale_while_revalidate_s, self.stale_if_error_s)
        return self.client_ttl_s + self.edge_ttl_s + 2 * window + self.added_s

    @property
    def added_s(self) -> int:
        """What an edge may add: nginx counts whole seconds, from the beginning of one to the end of another."""
        return 1 if "nginx" in self.dialects else 0

    def until(self, boundary_s: int) -> Lives:
        """Return these lives, shortened so that nothing kept by anyone is served after ``boundary_s`` from now.

        An edge gives its answer on at the last moment of its own life, and a client then starts counting anew, as
        not every edge sends ``Age``: so both lives and both stale windows, one after the other, must fit. Of a short
        rest the edge gets at least half: it is the edge that keeps the crowd away.
        """
        rest = max(0, boundary_s - self.added_s)
        edge = min(self.edge_ttl_s, max(rest - self.client_ttl_s, (rest + 1) // 2))
        client = min(self.client_ttl_s, rest - edge)
        window = (rest - edge - client) // 2
        return replace(
            self,
            client_ttl_s=client,
            edge_ttl_s=edge,
            stale_while_revalidate_s=min(self.stale_while_revalidate_s, window),
            stale_if_error_s=min(self.stale_if_error_s, window),
        )


def shortest(lives: Sequence[Lives]) -> Lives:
    """Return the lives of an answer about several boards (the catalogue): of each kind the shortest there is."""
    if not lives:
        return Lives()
    return Lives(
        client_ttl_s=min(each.client_ttl_s for each in lives),
        edge_ttl_s=min(each.edge_ttl_s for each in lives),
        stale_while_revalidate_s=min(each.stale_while_revalidate_s for each in lives),
        stale_if_error_s=min(each.stale_if_error_s for each in lives),
        dialects=lives[0].dialects,
    )


def fresh(lives: Lives, *, tags: Sequence[str] = (), until_boundary_s: int | None = None) -> Headers:
    """Return the fields of a fresh top, ranks, board or catalogue.

    ``tags``: what ``cdn.tags.tags_of`` gives; they are sent only in the dialects that have tags.
    ``until_boundary_s``: whole seconds, rounded down, to the instant at which the same URL will mean another period
    (the aliases ``current`` and ``previous``, the board route, the catalogue); None where that cannot happen.
    """
    return _storable(_cut(lives, until_boundary_s), tags)


def stale(lives: Lives, *, tags: Sequence[str] = (), until_boundary_s: int | None = None) -> Headers:
    """Return the fields of an answer that is stale already because Redis is away.

    It is kept for ``STALE_LIFE_S`` everywhere, so that an outage sends no crowd to the gateway, and a recovery is
    seen at once. The mark itself (``Leaderboard-Stale``, ``Cache-Status``) is the sender's to add.
    """
    # nginx collapses requests for an expired answer only within a stale window, and its lock is for answers that
    # it has not got at all; the other edges hold the requests until one has fetched.
    window = STALE_LIFE_S if "nginx" in lives.dialects else 0
    kept = replace(lives, client_ttl_s=STALE_LIFE_S, edge_ttl_s=STALE_LIFE_S, stale_while_revalidate_s=window)
    return _storable(_cut(kept, until_boundary_s), tags)


def short_lived(lives: Lives, *, tags: Sequence[str] = (), until_boundary_s: int | None = None) -> Headers:
    """Return the fields of an answer that lacks something which may be there in a moment: profiles, as yet.

    It is kept for ``SHORT_LIFE_S`` at most, and nobody may give it once that is over.
    """
    kept = replace(
        lives,
        client_ttl_s=min(lives.client_ttl_s, SHORT_LIFE_S),
        edge_ttl_s=min(lives.edge_ttl_s, SHORT_LIFE_S),
        stale_while_revalidate_s=0,
        stale_if_error_s=0,
    )
    return _storable(_cut(kept, until_boundary_s), tags)


def finished(
    lives: Lives, *, tags: Sequence[str] = (), immutable: bool = False, until_boundary_s: int | None = None
) -> Headers:
    """Return the fields of a period that is over and settled.

    ``immutable`` only counts for an answer asked for by label: an alias comes to mean another period, and RFC 8246
    §2 allows the directive for what will not change while it is fresh.
    """
    for_good = immutable and until_boundary_s is None
    kept = replace(
        lives,
        client_ttl_s=IMMUTABLE_S if for_good else FINISHED_CLIENT_S,
        edge_ttl_s=IMMUTABLE_S if for_good else FINISHED_EDGE_S,
        stale_while_revalidate_s=0,
        stale_if_error_s=0,
    )
    return _storable(_cut(kept, until_boundary_s), tags, immutable=for_good)


def uncached(dialects: Collection[Dialect] = ()) -> Headers:
    """Return the fields of an answer that nobody keeps: member, neighbors, members, a board read from the primary.

    Every error but an unknown leaderboard has them, too, or an outage would outlast itself: a status alone may be
    enough for a cache to keep an answer for a time of its own choice (RFC 9111 §4.2.2).
    """
    return [PRIVATE_NO_STORE if "fastly" in dialects else NO_STORE]


def board_not_found() -> Headers:
    """Return the fields of a 404 for a leaderboard that nobody configured: short, so that a new one appears soon."""
    return [(b"cache-control", b"public, max-age=%d" % NOT_FOUND_LIFE_S)]


def _cut(lives: Lives, until_boundary_s: int | None) -> Lives:
    return lives if until_boundary_s is None else lives.until(until_boundary_s)


def _storable(lives: Lives, tags: Sequence[str], *, immutable: bool = False) -> Headers:
    windows = (lives.stale_while_revalidate_s, lives.stale_if_error_s, immutable)
    client, edge = Lifetime(lives.client_ttl_s, *windows), Lifetime(lives.edge_ttl_s, *windows)
    standard = [
        (b"cache-control", b"public, " + client.directives()),
        (b"cdn-cache-control", b"public, " + edge.directives()),
        VARY,
    ]
    own = [field for name in lives.dialects for field in FIELDS[name](edge, tags)]
    # nginx before 1.23 minds the order. After Cache-Control, X-Accel-Expires replaces its life and leaves its stale
    # windows; before it, the windows are not read. But a max-age of 0 that comes first forbids it to keep anything.
    return standard + own if client.ttl_s else own + standard
