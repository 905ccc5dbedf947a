"""Hot: answers prepared for requests that come again and again, given before anything is parsed.

Knows: raw paths and query strings, Accept-Encoding and If-None-Match as they stand, until when an answer holds.
Must not know: routes, leaderboards, how an answer came about.

A prepared answer is the very same reply given again: it holds while the read path would say the same (a monotonic
instant), and no longer than its words mean the same period (a wall instant).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gateway.counters import Cell, Durations
from gateway.encode import Coding, Rendering
from gateway.http.answers import CONTENT, Answer, Headers
from gateway.http.negotiation import coding_for, none_match
from gateway.model import Kind, Outcome

KEPT_ANSWERS = 1024
"""An entry takes 2 KiB for each coding asked for; the bodies are the snapshots' own, but for parts of them."""
_PARTS_BYTES = 16 * 2**20
"""What the bodies take that are parts of a snapshot: of one with profiles, a thousand would be 100 MiB."""
_KEPT_CODINGS = 256
_KEPT_LENGTH_BYTES = 256
_SWEPT_AT_ONCE = 4


class Codings(dict[bytes, Coding]):
    """What each Accept-Encoding value came to: clients send a dozen different ones, inventive ones endless."""

    def __missing__(self, accept_encoding: bytes) -> Coding:
        """Choose, and remember the choice while there is room."""
        coding = coding_for(accept_encoding.decode("latin-1"))
        if len(self) < _KEPT_CODINGS and len(accept_encoding) <= _KEPT_LENGTH_BYTES:
            self[accept_encoding] = coding
        return coding


class Representation:
    """A body in its codings with everything that its 200 and its 304 say: ``common`` are the fields of both.

    ``validated`` is False where no validator is sent, and If-None-Match then means nothing.
    """

    __slots__ = ("_codings", "_forms", "_not_modified", "_rendering", "_validated", "common")

    def __init__(self, rendering: Rendering, common: Headers, codings: Codings, *, validated: bool = True) -> None:
        self.common = common
        self._rendering = rendering
        self._codings = codings
        self._validated = validated
        self._forms: dict[Coding, Answer] = {}
        self._not_modified: Answer | None = None

    @property
    def part_bytes(self) -> int:
        """What the body takes if nobody else is sure to keep it."""
        return self._rendering.size_bytes if self._rendering.is_part else 0

    def pick(self, headers: Headers) -> Answer:
        """Choose the answer to a request with these headers."""
        accepted = condition = None
        for name, value in headers:
            if name == b"accept-encoding":
                accepted = value if accepted is None else accepted + b", " + value
            elif name == b"if-none-match":
                condition = value if condition is None else condition + b", " + value
        if condition is not None and self._validated and self._is_known(condition):
            return self._not_modified or self._say_not_modified()
        coding = "identity" if accepted is None else self._codings[accepted]
        return self._forms.get(coding) or self._form(coding)

    def _is_known(self, condition: bytes) -> bool:
        etag = self._rendering.etag
        return condition == etag or not none_match(condition.decode("latin-1"), etag.decode())

    def _form(self, coding: Coding) -> Answer:
        offered = self._rendering.offer(coding)
        encoded = [] if offered == "identity" else [(b"content-encoding", offered.encode())]
        answer = Answer(200, [*CONTENT, *encoded, *self.common], self._rendering.form(offered))
        self._forms[coding] = answer
        return answer

    def _say_not_modified(self) -> Answer:
        self._not_modified = answer = Answer(304, self.common)
        return answer


@dataclass(slots=True)  # not a tuple: the hot path reads its fields, and slots are read in half the time
class Prepared:
    """A representation that may be given again, what to count each time, and until when.

    ``until`` is monotonic and included; ``boundary`` wall seconds, excluded, None where words never change meaning.
    """

    representation: Representation
    until: float
    boundary: float | None
    route: Kind
    outcome: Outcome
    reads: Cell
    durations: Durations
    found: Cell
    not_modified: Cell
    part_bytes: int = 0
    """What its body took when it was kept."""


class HotAnswers:
    """Prepared answers by raw path and query string, at most ``KEPT_ANSWERS``, the oldest dropped first.

    They are a second at most away from being made again, so that a flood of other spellings costs the others a few
    microseconds and no Redis read.
    """

    def __init__(self, limit: int = KEPT_ANSWERS) -> None:
        self._limit = limit
        self._kept: dict[tuple[bytes, bytes], Prepared] = {}
        self._parts_bytes = 0
        self.get: Callable[[Any], Prepared | None] = self._kept.get
        """Return what was prepared for a raw path and a query string, None if nothing was."""

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def put(self, key: tuple[bytes, bytes], prepared: Prepared, now: float) -> None:
        """Keep an answer; drop a few old ones that no longer hold, or the oldest if there is no room."""
        self._drop(key)
        prepared.part_bytes = prepared.representation.part_bytes
        for old in list(islice(self._kept, _SWEPT_AT_ONCE)):
            if self._kept[old].until >= now and len(self._kept) < self._limit and self._has_room_for(prepared):
                break
            self._drop(old)
        if self._has_room_for(prepared):
            self._kept[key] = prepared
            self._parts_bytes += prepared.part_bytes

    def _has_room_for(self, prepared: Prepared) -> bool:
        return self._parts_bytes + prepared.part_bytes <= _PARTS_BYTES

    def _drop(self, key: tuple[bytes, bytes]) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._parts_bytes -= dropped.part_bytes
