"""Excerpt: answer a member read out of a snapshot's rows, for outages and archived periods.

Knows: rows read back, and when a member read lies wholly inside them.
Must not know: why the origin was not asked.
"""

from __future__ import annotations

import re

from gateway import encode
from gateway.encode import Snapshot
from gateway.jsontext import text_of
from gateway.model import Query, Stamp, Standings, Window

_ESCAPED = re.compile(r"\\x[89a-f][0-9a-f]")
"""How a byte that is not UTF-8 is shown (``text_of``), and what a member may hold as four characters of its own."""


def body_from(query: Query, snapshot: Snapshot, *, stale: bool) -> bytes | None:
    """Return the answer to a member read if all of it lies inside this snapshot, else None."""
    rows = encode.read_back(snapshot.content)
    wanted = [text_of(member) for member in query.members]
    if any(_ESCAPED.search(text) for text in wanted):
        return None  # what such a row's member was in bytes, its text does not tell
    places = {text: place for place, (text, _) in enumerate(rows)}
    if not all(text in places for text in wanted):
        return None
    target = query.target
    stamp = Stamp(snapshot.began, snapshot.as_of, stale)
    total = snapshot.content.total
    if query.kind == "neighbors":
        place = places[wanted[0]]
        last = min(place + query.below, total - 1)
        if last >= len(rows):
            return None
        cut = [entry for _, entry in rows[max(0, place - query.above) : last + 1]]
        return encode.window_body(target, Window(stamp, total, cut), stale=stale)
    found = sorted(places[text] for text in wanted)
    standings = Standings(stamp, total, [rows[place][1] for place in found], ())
    make = encode.member_body if query.kind == "member" else encode.members_body
    return make(target, standings, stale=stale)
