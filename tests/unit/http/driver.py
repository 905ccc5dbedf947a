"""A client that speaks ASGI and nothing else: raw paths arrive as they were written.

Knows: ASGI's messages, a read path that says what a test wants.
Must not know: how the application answers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from gateway.boards import Boards
from gateway.counters import Counters
from gateway.encode import Rendering, rendering_of
from gateway.http.access import AccessLog, AccessMode
from gateway.http.app import HttpApp
from gateway.http.responses import Responses
from gateway.model import Board, Query
from gateway.readpath import Readiness, Reply
from tests.fakes import FakeClock

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Got:
    """An answer as the server was told to send it."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes

    def __getitem__(self, name: str) -> str:
        """Return a field's value; there must be exactly one line of it."""
        (value,) = self.all(name)
        return value

    def __contains__(self, name: str) -> bool:
        """Whether the field was sent."""
        return bool(self.all(name))

    def all(self, name: str) -> list[str]:
        """Return the values of all lines of a field."""
        return [value.decode() for key, value in self.fields if key == name.encode()]

    @property
    def names(self) -> set[str]:
        """The names of all fields."""
        return {name.decode() for name, _ in self.fields}

    @property
    def json(self) -> Any:
        """The body read as strict JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The problem's code; the answer must be a problem."""
        assert self["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["code"])

    @property
    def raw(self) -> bytes:
        """The answer as HTTP/1.1, with the Date that every server adds."""
        lines = b"".join(b"%b: %b\r\n" % each for each in self.fields)
        date = b"Date: " + formatdate(usegmt=True).encode()
        return b"HTTP/1.1 %d \r\n%b\r\n%b\r\n%b" % (self.status, date, lines, self.body)


async def ask(app: Any, target: str | bytes, *, method: str = "GET", headers: Pairs = (), **scope: Any) -> Got:
    """Send one request and return the answer; whatever the application raises is raised."""
    raw = target if isinstance(target, bytes) else target.encode()
    raw_path, _, query = raw.partition(b"?")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(
        {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw_path.decode("latin-1")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
            "client": ("192.0.2.7", 50000),
            "server": ("127.0.0.1", 8080),
            **scope,
        },
        receive,
        send,
    )
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert all(message["type"] == "http.response.body" for message in bodies)
    body = b"".join(message.get("body", b"") for message in bodies)
    got = Got(start["status"], list(start["headers"]), body)
    if method != "HEAD" and "content-length" in got:
        assert int(got["content-length"]) == len(body)
    return got


@dataclass
class FakeReads:
    """A read path that answers with ``reply``, or raises ``error``, and remembers what it was asked."""

    clock: FakeClock
    reply: Reply | None = None
    error: BaseException | None = None
    queries: list[Query] = field(default_factory=list)

    async def read(self, query: Query) -> Reply:
        """Answer as told; by default a miss that may be given again for a second."""
        self.queries.append(query)
        if self.error is not None:
            raise self.error
        return self.reply or self.plain(query)

    def plain(self, query: Query) -> Reply:
        """Return an unexciting reply of the right kind."""
        if query.kind in ("member", "neighbors", "members"):
            return Reply("miss", b'{"rank":1}', self.clock.wall(), stale=False, stored=False)
        final = self.clock.wall() >= query.target.final_at
        until = self.clock.monotonic() + 1
        return Reply("hit", BODY, self.clock.wall(), stale=False, fresh_until=until, final=final)


BODY: Rendering = rendering_of(b'{"leaderboard":"downloads","entries":[%b]}' % b",".join([b'{"rank":1}'] * 100))


@dataclass
class Site:
    """An application over fakes."""

    boards: tuple[Board, ...] = (Board(name="downloads", key="lb:downloads"),)
    dialects: tuple[Any, ...] = ()
    access: AccessMode = "off"

    def __post_init__(self) -> None:
        """Put it together."""
        self.clock = FakeClock()
        self.counters = Counters()
        self.reads = FakeReads(self.clock)
        self.readiness = Readiness(ready=True, redis_up=True, fresh=1, last_known=0, missing=0)
        self.app = HttpApp(
            boards=Boards(self.boards),
            reads=self.reads,
            readiness=lambda: self.readiness,
            responses=Responses(self.boards, self.dialects),
            clock=self.clock,
            counters=self.counters,
            random_bits=random.Random(7).getrandbits,
            access=AccessLog(self.access),
        )

    async def get(self, target: str | bytes, headers: Pairs = (), method: str = "GET", **scope: Any) -> Got:
        """Ask the application."""
        return await ask(self.app, target, method=method, headers=headers, **scope)

    def count(self, name: str, *labels: str) -> int:
        """Return a counter's value."""
        return self.counters.counters[name].cells.get(labels, [0])[0]
