"""Encode: what the origin said becomes body bytes, compressed forms and an ETag, once per content.

Knows: the bodies of the contract, gzip and brotli.
Must not know: ages, clocks, Redis, HTTP headers beyond the ETag's form.

Rows are kept as bytes with the offset of each row's end, never as objects: one content serves every smaller limit
and every range inside it by slicing.
"""

from __future__ import annotations

import gzip
import json
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import brotli  # type: ignore[import-untyped]  # ships no stubs
from cachetools import LRUCache

from gateway.jsontext import json_string, number, profile_json, rfc3339
from gateway.model import Entry, SnapshotKey, Standings, Target, Window
from gateway.rows import row_list, row_texts

Coding = Literal["identity", "gzip", "br"]

_GZIP_LEVEL = 6
_BROTLI_QUALITY = 5
"""Quality 5 takes 0.3 ms for a top 100 and is within a few percent of quality 11, which takes 10 ms of the loop."""
_RENDERINGS_PER_CONTENT = 8
_COMPRESSIONS_OF_PARTS = 16
"""How many compressed forms the parts of a content get between two reads of it. To compress takes many times what
answering does, and clients can ask for five thousand parts of a top 100; beyond this they get them as they are."""

_COMPRESS: dict[Coding, Callable[[bytes], bytes]] = {
    # mtime=0: the same content gives the same bytes on every worker.
    "gzip": lambda body: gzip.compress(body, _GZIP_LEVEL, mtime=0),
    "br": lambda body: bytes(brotli.compress(body, quality=_BROTLI_QUALITY)),
}


class Allowance:
    """How many more forms may be made."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Rendering:
    """One body in all its codings, with the weak ETag that they share (RFC 9110 §8.8.1: weak, as codings differ).

    ``allowance`` is shared with others whose forms it pays for as well; None: there is no limit.
    """

    __slots__ = ("_allowance", "_forms", "etag")

    def __init__(self, identity: bytes, etag: bytes, allowance: Allowance | None = None) -> None:
        self.etag = etag
        self._allowance = allowance
        self._forms: dict[Coding, bytes] = {"identity": identity}

    def offer(self, wanted: Coding) -> Coding:
        """Return the coding to send: the wanted one, or identity if that form is not made and may not be."""
        if self._allowance is None or self._allowance.left > 0 or wanted in self._forms:
            return wanted
        return "identity"

    def form(self, coding: Coding) -> bytes:
        """Return the body in this coding; made on first use, kept as long as the content is."""
        form = self._forms.get(coding)
        if form is None:
            form = self._forms[coding] = _COMPRESS[coding](self._forms["identity"])
            if self._allowance is not None:
                self._allowance.left -= 1
        return form

    @property
    def is_part(self) -> bool:
        """Whether its content makes it anew when it was asked for many others."""
        return self._allowance is not None

    @property
    def size_bytes(self) -> int:
        """What the forms made so far take."""
        return sum(map(len, self._forms.values()))


def weak_etag(*parts: bytes) -> bytes:
    """Return ``W/"…"`` over these bytes: 96 bits of BLAKE2b, the same on every worker and after a restart."""
    digest = blake2b(digest_size=12)
    for part in parts:
        digest.update(part)
    return b'W/"%s"' % digest.hexdigest().encode()


def rendering_of(body: bytes) -> Rendering:
    """Return a rendering whose ETag covers the whole body, for answers that hold no ``as_of``."""
    return Rendering(body, weak_etag(body))


def _opening(target: Target) -> bytes:
    return _opening_of(target.leaderboard, target.label, target.board.order)


@lru_cache(maxsize=1024)
def _opening_of(leaderboard: str, label: str | None, order: str) -> bytes:
    text = json.dumps(
        {"leaderboard": leaderboard, "period": label, "order": order}, ensure_ascii=False, separators=(",", ":")
    )
    return text.encode()[:-1] + b',"as_of":"'


class Content:
    """The encoded rows of one window, and the renderings made of them.

    ``as_of`` is when this content was first read (wall seconds); an unchanged board keeps it, and with it its bodies.
    """

    __slots__ = ("_allowance", "_parts", "_wholes", "as_of", "boards", "ends", "first", "opening", "rows", "total")

    def __init__(self, opening: bytes, first: int, rows: Sequence[bytes], total: int, as_of: float) -> None:
        self.opening = opening
        self.first = first
        self.total = total
        self.as_of = as_of
        self.rows = b",".join(rows)
        self.ends = array("I", _row_ends(rows))
        self._wholes: dict[bool, Rendering] = {}
        self.boards: dict[bool, Rendering] = {}
        """The bodies of the board's own route, stale and not, as ``board_rendering`` made them."""
        self._parts: LRUCache[tuple[int, int, bool], Rendering] = LRUCache(_RENDERINGS_PER_CONTENT)
        self._allowance = Allowance(_COMPRESSIONS_OF_PARTS)

    @classmethod
    def of(cls, target: Target, first: int, window: Window) -> Content:
        """Encode what the origin said of places ``first`` and on."""
        rows = [text.encode() for text in row_texts(target, window.entries)]
        return cls(_opening(target), first, rows, window.total, window.stamp.as_of)

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.ends)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, to a few hundred bytes, compressed forms included."""
        renderings = (*self._wholes.values(), *self._parts.values(), *self.boards.values())
        forms = sum(rendering.size_bytes + 200 for rendering in renderings)
        return len(self.rows) + 4 * len(self.ends) + len(self.opening) + forms + 1000

    def same_as(self, other: Content) -> bool:
        """Whether both say the same of the same places, whenever they were read."""
        return (
            self.rows == other.rows
            and self.total == other.total
            and self.first == other.first
            and self.opening == other.opening
        )

    def rendering(self, first: int, last: int, *, stale: bool) -> Rendering:
        """Return the body for places ``first`` to ``last`` (1-based, inclusive; cut at the rows there are)."""
        start, stop = self._clip(first, last)
        if stop - start == len(self.ends):  # what nearly everybody asks for: no part pushes it out
            whole = self._wholes.get(stale)
            if whole is None:
                whole = self._wholes[stale] = self._render(start, stop, None, stale=stale)
            return whole
        key = (start, stop, stale)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._render(start, stop, self._allowance, stale=stale)
        return part

    def read_again(self) -> None:
        """Note that the origin said the same once more: as many forms of parts may be made again."""
        self._allowance.left = _COMPRESSIONS_OF_PARTS

    def _clip(self, first: int, last: int) -> tuple[int, int]:
        start = min(first - self.first, len(self.ends))
        return start, max(start, min(last - self.first + 1, len(self.ends)))

    def _render(self, start: int, stop: int, allowance: Allowance | None, *, stale: bool) -> Rendering:
        begin = self.ends[start - 1] + 1 if 0 < start < stop else 0
        rows = self.rows[begin : self.ends[stop - 1]] if start < stop else b""
        closing = b'","stale":%b,"total":%d,"entries":[%b]}' % (_json_bool(stale), self.total, rows)
        return Rendering(self.opening + rfc3339(self.as_of) + closing, weak_etag(self.opening, closing), allowance)


def _row_ends(rows: Sequence[bytes]) -> Iterator[int]:
    end = -1
    for encoded in rows:
        end += len(encoded) + 1
        yield end


def _json_bool(value: bool) -> bytes:
    return b"true" if value else b"false"


def read_back(content: Content) -> list[tuple[str, Entry]]:
    """Read the rows back as entries, each with its member's text; for when last known rows answer for members.

    A member that is not UTF-8 comes back as its text: what is shown of it is the same.
    """
    return [(fields["member"], _entry(fields)) for fields in json.loads(b"[%b]" % content.rows)]


def _entry(fields: dict[str, Any]) -> Entry:
    profile = fields.get("profile")
    if profile is not None and not isinstance(profile, str):
        profile = json.dumps(profile, ensure_ascii=False, separators=(",", ":"))
    encoded = None if profile is None else profile.encode()
    return Entry(fields["rank"], fields["member"].encode(), float(fields["score"]), encoded)


class Snapshot:
    """The immutable answer to one query, from one node, at one instant.

    ``began`` is monotonic: ages count from it. ``as_of`` is wall time: when it was last read, or, if ``stale``, the
    last instant known to be in step. ``behind_s`` is how much older than ``began`` the data is. ``short_lived`` marks
    rows whose profiles could not be read.
    """

    __slots__ = ("as_of", "began", "behind_s", "content", "key", "short_lived", "stale")

    def __init__(
        self,
        key: SnapshotKey,
        content: Content,
        *,
        began: float,
        as_of: float,
        behind_s: float = 0.0,
        stale: bool = False,
        short_lived: bool = False,
    ) -> None:
        self.key = key
        self.content = content
        self.began = began
        self.as_of = as_of
        self.behind_s = behind_s
        self.stale = stale
        self.short_lived = short_lived

    def dump(self) -> bytes:
        """Return the snapshot as bytes that ``restore`` reads; the format's version is in the first two bytes."""
        header = DumpHeader(
            self.content.first, self.content.total, self.content.as_of, self.as_of, self.stale, list(self.content.ends)
        )
        head = json.dumps(header).encode()
        opening = self.content.opening
        return b"%b%b%b%b%b" % (
            _DUMP_VERSION,
            struct.pack("!II", len(head), len(opening)),
            head,
            opening,
            self.content.rows,
        )


class DumpHeader(NamedTuple):
    """What a dumped snapshot says besides its rows."""

    first: int
    total: int
    content_as_of: float
    as_of: float
    stale: bool
    ends: list[int]


_DUMP_VERSION = b"S1"


def restore(blob: bytes, key: SnapshotKey, *, monotonic: float, wall: float) -> Snapshot:
    """Read back a dumped snapshot; raise ``ValueError`` if these bytes are not one.

    Its age starts at wall now minus its read time, never below 0, and runs monotonic from here on.
    """
    try:
        if blob[:2] != _DUMP_VERSION:
            raise ValueError(blob[:2])
        head_len, opening_len = struct.unpack_from("!II", blob, 2)
        header = DumpHeader(*json.loads(blob[10 : 10 + head_len]))
        body = blob[10 + head_len :]
        rows = _split(body[opening_len:], header.ends)
        content = Content(body[:opening_len], header.first, rows, header.total, header.content_as_of)
    except (struct.error, TypeError, IndexError) as error:
        raise ValueError("not a dumped snapshot") from error
    age_s = max(0.0, wall - header.as_of)
    return Snapshot(key, content, began=monotonic - age_s, as_of=header.as_of, stale=header.stale)


def _split(rows: bytes, ends: Sequence[int]) -> list[bytes]:
    if (ends[-1] if ends else 0) != len(rows):
        raise ValueError("cut short")
    starts = [0, *(end + 1 for end in ends)]
    return [rows[start:end] for start, end in zip(starts, ends, strict=False)]


def window_body(target: Target, window: Window, *, stale: bool) -> bytes:
    """Return the JSON of a member's neighbors: the same fields as the top."""
    return b'%b%b","stale":%b,"total":%d,"entries":[%b]}' % (
        _opening(target),
        rfc3339(window.stamp.as_of),
        _json_bool(stale),
        window.total,
        row_list(target, window.entries),
    )


def board_rendering(target: Target, snapshot: Snapshot, *, stale: bool, bound_s: float) -> Rendering:
    """Return the JSON of the board's own route, made once; its ETag leaves out ``as_of``, as the top's does."""
    made = snapshot.content.boards.get(stale)
    if made is None:
        made = snapshot.content.boards[stale] = _board_rendering(target, snapshot, stale=stale, bound_s=bound_s)
    return made


def _board_rendering(target: Target, snapshot: Snapshot, *, stale: bool, bound_s: float) -> Rendering:
    board, period = target.board, target.period
    span = b"null"
    if period is not None:
        names = ("kind", "label", "start", "end", "previous")
        values = (period.kind, period.label, *map(_instant, (period.start, period.end)), period.previous)
        span = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, separators=(",", ":")).encode()
    opening = b'{"leaderboard":%b,"order":"%b","ties":"%b","as_of":"' % (
        json_string(target.leaderboard.encode()),
        board.order.encode(),
        board.ties.encode(),
    )
    closing = b'","stale":%b,"total":%d,"staleness_bound_s":%b,"period":%b}' % (
        _json_bool(stale),
        snapshot.content.total,
        number(round(bound_s, 3)),
        span,
    )
    return Rendering(opening + rfc3339(snapshot.content.as_of) + closing, weak_etag(opening, closing))


def _instant(wall: float) -> str:
    """Return a period's boundary, which falls on a whole second, as RFC 3339 without a fraction."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def member_body(target: Target, standings: Standings, *, stale: bool) -> bytes:
    """Return the JSON of one member's rank and score; ``standings`` holds exactly one entry."""
    entry = standings.entries[0]
    profile = b',"profile":%b' % profile_json(entry.profile) if target.profiles_key is not None else b""
    return b'%b%b","stale":%b,"total":%d,"member":%b,"rank":%d,"score":%b%b}' % (
        _opening(target),
        rfc3339(standings.stamp.as_of),
        _json_bool(stale),
        standings.total,
        json_string(entry.member),
        entry.rank,
        number(entry.score),
        profile,
    )


def members_body(target: Target, standings: Standings, *, stale: bool) -> bytes:
    """Return the JSON of a batch of members: rows sorted by rank, and the absent ones."""
    return b'%b%b","stale":%b,"total":%d,"entries":[%b],"missing":[%b]}' % (
        _opening(target),
        rfc3339(standings.stamp.as_of),
        _json_bool(stale),
        standings.total,
        row_list(target, standings.entries),
        b",".join(map(json_string, standings.missing)),
    )
