"""The requests of the load: learned from the gateway's own API, so that any gateway can be asked.

Knows: the routes of the contract, and how a game client asks.
Must not know: Locust, Redis, how requests are sent.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from random import Random
from typing import Any

from loadtests.arrivals import deal
from loadtests.driver import Request
from loadtests.wire import Answer, address_of, field_of, get, segment

TOP = "top"
TOP_CONDITIONAL = "top, If-None-Match"
RANK = "rank"
NEIGHBORS = "neighbors"
ROUTES = (TOP, TOP_CONDITIONAL, RANK, NEIGHBORS)

WINDOWS = 40
"""How many windows of 100 rows, spread over the board, members are learned from."""


@dataclass(frozen=True, slots=True)
class KnownMember:
    """A member and, where the board stands still, its rank (0: do not check it)."""

    member: str
    rank: int = 0


def fetch(url: str, target: str) -> Any:
    """GET one target and return its JSON; raise ``RuntimeError`` on anything but 200."""
    host, port = address_of(url)
    with closing(http.client.HTTPConnection(host, port, timeout=10)) as connection:
        connection.request("GET", target, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{target} answered {answer.status}: {body[:200]!r}")
        return json.loads(body)


def boards_of(url: str) -> list[str]:
    """Return the names of the boards that are no families; raise ``RuntimeError`` if there are none."""
    names = [board["leaderboard"] for board in fetch(url, "/v1/leaderboards")["leaderboards"]]
    plain = [name for name in names if "<" not in name]
    if not plain:
        raise RuntimeError("the gateway has no board whose name is known")
    return plain


def members_of(url: str, board: str, *, windows: int = WINDOWS) -> list[KnownMember]:
    """Return members from all over a board, read through its ``ranks`` route, with no rank to check."""
    base = f"/v1/leaderboards/{segment(board)}"
    total = fetch(url, f"{base}/top?limit=1")["total"]
    starts = sorted({1 + (total * part // windows) for part in range(windows)})
    return [
        KnownMember(entry["member"])
        for start in starts
        for entry in fetch(url, f"{base}/ranks?from={start}&to={start + 99}")["entries"]
    ]


@dataclass(slots=True)
class Mix:
    """An endless stream of requests of several kinds, in exactly the proportions asked for.

    The validator of a conditional request is the newest one an answer carried: what a client that polls would send.
    """

    url: str
    boards: Sequence[str]
    members: Mapping[str, Sequence[KnownMember]]
    weights: Mapping[str, float]
    random: Random
    hand: Sequence[str] = field(init=False)
    in_turn: bool = False
    """Boards one after the other, as an edge whose copies expire together asks for them; else drawn evenly."""
    check: bool = True
    """False against a constant endpoint, whose body is nobody's in particular."""
    _host: str = field(init=False)
    _tops: dict[str, Request] = field(init=False, default_factory=dict)
    _conditional: dict[str, Request] = field(init=False, default_factory=dict)
    _etags: dict[str, bytes] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the bytes of what is asked again and again."""
        self.hand = deal(self.weights, self.random)
        host, port = address_of(self.url)
        self._host = f"{host}:{port}"
        for board in self.boards:
            self._tops[board] = Request(TOP, get(self._host, top_target(board)), b'"entries":[', board)
            self._take(board, b'W/"none"')

    def __iter__(self) -> Iterator[Request]:
        """Yield requests for ever."""
        turn = cycle(self.boards)
        while True:
            for kind in self.hand:
                yield self._request(kind, next(turn) if self.in_turn else self.random.choice(self.boards))

    def _request(self, kind: str, board: str) -> Request:
        if kind == TOP:
            return self._tops[board]
        if kind == TOP_CONDITIONAL:
            return self._conditional[board]
        request = member_request(kind, self._host, board, self.random.choice(self.members[board]))
        return request if self.check else request._replace(expect=b"")

    def learn(self, request: Request, answer: Answer, data: bytearray) -> None:
        """Take the validator of a 200 for the board's next conditional requests."""
        board = request.board
        if answer.status == 200 and data.find(self._etags[board], 0, answer.body_at) < 0:
            etag = field_of(data, b"etag")
            if etag is not None:
                self._take(board, etag)

    def _take(self, board: str, etag: bytes) -> None:
        self._etags[board] = etag
        data = get(self._host, top_target(board), {"If-None-Match": etag.decode("latin-1")})
        self._conditional[board] = Request(TOP_CONDITIONAL, data, b'"entries":[', board)


def top_target(board: str) -> str:
    """Return the target of a board's top."""
    return f"/v1/leaderboards/{segment(board)}/top"


def member_request(kind: str, host: str, board: str, known: KnownMember) -> Request:
    """Return a rank or neighbors request whose answer must name the member asked for, and its rank where known."""
    target = f"/v1/leaderboards/{segment(board)}/members/{segment(known.member)}"
    name = json.dumps(known.member, ensure_ascii=False).encode()
    if kind == NEIGHBORS:
        row = b'"member":' + name
        if known.rank:
            row = b'"rank":%d,' % known.rank + row
        return Request(NEIGHBORS, get(host, f"{target}/neighbors"), row)
    expect = b'"member":' + name + (b',"rank":%d,' % known.rank if known.rank else b"")
    return Request(RANK, get(host, target), expect)
