"""Contradictions: what a declaration, or a set of header fields, says that cannot all be true.

Knows: which directives exclude which, and why.
Must not know: the settings' form, boards' data, who asks.

Every function yields ``(path, message)``: the key that is at fault, relative to what was given, and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from cdn.dialects import EDGE_LIFE_FIELDS, TAG_FIELDS, Dialect, Headers
from cdn.policy import Lives

Contradiction: TypeAlias = tuple[str, str]

SHARED_LIFE_KEYS = ("s-maxage", "s_maxage", "s_maxage_s", "shared_max_age_s", "shared_ttl_s")
"""What people call the life in shared caches who are used to ``s-maxage``."""

S_MAXAGE = (
    "cannot be said beside stale-while-revalidate and stale-if-error: s-maxage has the meaning of proxy-revalidate, "
    "which forbids a shared cache to serve anything stale (RFC 9111 §5.2.2.10); edge_ttl_s is the life at an edge"
)
NO_STORE_TAGS = (
    "a board that nobody keeps (no-store, RFC 9111 §5.2.2.5) has nothing that a tag could purge: "
    "set its lives, or do not tag it"
)

LIFE_KEYS = ("client_ttl_s", "edge_ttl_s", "stale_while_revalidate_s", "stale_if_error_s")


def in_declaration(declared: Mapping[str, object], *, cached: bool) -> Iterator[Contradiction]:
    """Yield what is wrong with the keys somebody wrote for one board, known keys or not.

    ``cached``: whether the board's top is kept at all; it is not for a board read from the primary unless every
    life is set on purpose.
    """
    for key in SHARED_LIFE_KEYS:
        if key in declared:
            yield key, S_MAXAGE
    if cached:
        return
    if "tags" in declared:
        yield "tags", NO_STORE_TAGS
    if declared.get("finished") == "immutable":
        yield "finished", "immutable is a life, and a board read from the primary is kept by nobody (no-store)"


def in_periods(lives: Lives, shortest_period_s: float) -> Iterator[Contradiction]:
    """Yield the lives that are longer than the board's shortest period lasts.

    Near a boundary every life is cut to what is left, so such a life could never be sent as it was declared.
    """
    for key in LIFE_KEYS:
        declared = getattr(lives, key)
        if declared > shortest_period_s:
            yield key, f"reaches past the period's end: the shortest lasts {shortest_period_s:g} s, so at most that"


def in_purging(dialects: Sequence[Dialect], edges: Sequence[str]) -> Iterator[Contradiction]:
    """Yield the edges that shall be purged by tags which the gateway would not send; ``edges`` are their kinds."""
    for index, edge in enumerate(edges):
        if edge not in dialects:
            yield (
                f"purge[{index}].edge",
                f'cannot be purged by tag unless dialects holds "{edge}", which sends the tags',
            )


def in_headers(headers: Headers) -> Iterator[str]:
    """Yield what is wrong with one answer's fields, taken together."""
    fields = {name: value.decode() for name, value in headers}
    control = fields.get(b"cache-control", "")
    edge_control = fields.get(b"cdn-cache-control", "")
    stored = [name.decode() for name in (*TAG_FIELDS, *EDGE_LIFE_FIELDS) if name in fields]
    if not control:
        yield "has no Cache-Control, so that every cache would choose a life of its own (RFC 9111 §4.2.2)"
    if "no-store" in control and stored:
        yield f"is no-store, and {', '.join(stored)} says otherwise"
    if "no-store" in control and "max-age" in control:
        yield "is no-store with a life"
    for value in filter(None, (control, edge_control)):
        yield from _in_directives(value)
    if b"set-cookie" in fields and "no-store" not in control:
        yield "sets a cookie in an answer that edges share"
    if fields.get(b"vary", "Accept-Encoding").lower() != "accept-encoding":
        yield "varies on more than Accept-Encoding, which makes a cache entry for every client"


def _in_directives(value: str) -> Iterator[str]:
    if "s-maxage" in value and "stale-" in value:
        yield "s-maxage " + S_MAXAGE
    if "max-age" in value and "public" not in value:
        yield "is not public, so that requests with Authorization would not share it (RFC 9111 §3.5)"
    if re.search(r"=(?!\d+(?:,|$))", value):
        yield "has a life that is not in whole seconds (RFC 9111 §1.2.2)"
