"""Stand-ins for time and for Redis that hold what the real ones promise.

Knows: gateway.model and gateway.clock.
Must not know: how the gateway reads Redis; the fake origin sorts in plain Python on purpose.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gateway.errors import OriginUnavailable, WrongType
from gateway.model import Entry, Stamp, Standings, Target, Window

PROFILE_LIMIT_BYTES = 1024


async def settle(turns: int = 25) -> None:
    """Let every task that can run do so, for some turns of the loop; no time passes."""
    for _ in range(turns):
        await asyncio.sleep(0)


class FakeClock:
    """A ``Clock`` that stands still until a test moves it."""

    def __init__(self, *, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self.now, self.now_wall = monotonic, wall
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = 0

    def monotonic(self) -> float:
        """Return the seconds that tests have advanced, from some start."""
        return self.now

    def wall(self) -> float:
        """Return wall time: it advances with the other and may be moved on its own."""
        return self.now_wall

    @property
    def sleepers(self) -> int:
        """How many tasks wait for time to pass."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until a test has advanced that far; zero or less only gives way."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self.now + seconds, self._order, future))
        await future

    def advance(self, seconds: float) -> None:
        """Jump ahead and wake, in order, whoever is due; they run when the test next gives way."""
        assert seconds >= 0, "monotonic time never goes back"
        self.now += seconds
        self.now_wall += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    async def elapse(self, seconds: float) -> None:
        """Let time pass: stop at every sleeper's due time, and let it run (and sleep again) before going on."""
        end = self.now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(max(0.0, self._sleepers[0][0] - self.now))
            await settle()
        self.advance(max(0.0, end - self.now))
        await settle()

    def move_wall(self, seconds: float) -> None:
        """Move wall time alone, in either direction, as NTP or an operator does."""
        self.now_wall += seconds


class FakeOrigin:
    """An ``Origin`` over dicts: ``boards[key][member] = score``, ``profiles[key][member] = text``.

    ``calls`` counts by method; ``running`` and ``most_running`` show overlap. ``gate``, where set, holds every
    read back until it is set; what is read is what stands there afterwards.
    """

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.boards: dict[bytes, dict[bytes, float]] = {}
        self.profiles: dict[bytes, dict[bytes, bytes]] = {}
        self.wrong_types: set[bytes] = set()
        self.calls: Counter[str] = Counter()
        self.running = self.most_running = 0
        self.gate: asyncio.Event | None = None
        self.delay_s = 0.0
        self.stale_since: float | None = None
        """Wall time of the last instant in step; set it and every answer is stale from then."""
        self.absence_unknown = False
        """No primary answers: an absent key cannot be confirmed."""
        self.profiles_fail = False
        self._failures: list[Exception] = []
        self._failing: Exception | None = None

    def put(self, key: bytes, scores: Mapping[bytes | str, float]) -> None:
        """Write scores to a board; an empty mapping makes no key, as in Redis."""
        board = self.boards.setdefault(key, {})
        board.update(
            {member.encode() if isinstance(member, str) else member: float(score) for member, score in scores.items()}
        )
        if not board:
            del self.boards[key]

    def remove(self, key: bytes, *members: bytes) -> None:
        """Remove members, or without any the whole key; a board with no member left is no key."""
        board = self.boards.get(key, {})
        for member in members or list(board):
            board.pop(member, None)
        if not board:
            self.boards.pop(key, None)

    def fail(self, error: Exception | None = None, *, times: int | None = None) -> None:
        """Fail the next ``times`` reads, or all until ``heal``."""
        error = error or OriginUnavailable()
        if times is None:
            self._failing = error
        else:
            self._failures += [error] * times

    def heal(self) -> None:
        """Answer again."""
        self._failing = None
        self._failures.clear()

    def hold(self) -> asyncio.Event:
        """Hold reads back from now on; the event returned lets them go."""
        self.gate = asyncio.Event()
        return self.gate

    async def window(self, target: Target, first: int, last: int) -> Window:
        """Read places ``first`` to ``last``."""
        stamp, rows = await self._read("window", target)
        return Window(stamp, len(rows), self._shown(target, rows[first - 1 : last]), self._no_profiles(target))

    async def member(self, target: Target, member: bytes) -> Standings:
        """Read one member."""
        return await self._standings("member", target, [member])

    async def members(self, target: Target, members: Sequence[bytes]) -> Standings:
        """Read some members."""
        return await self._standings("members", target, members)

    async def neighbors(self, target: Target, member: bytes, above: int, below: int) -> Window:
        """Read a member and those around it."""
        stamp, rows = await self._read("neighbors", target)
        at = next((index for index, row in enumerate(rows) if row.member == member), None)
        around = [] if at is None else rows[max(0, at - above) : at + below + 1]
        return Window(stamp, len(rows), self._shown(target, around), self._no_profiles(target))

    async def _standings(self, call: str, target: Target, members: Sequence[bytes]) -> Standings:
        stamp, rows = await self._read(call, target)
        wanted = set(members)
        found = [row for row in rows if row.member in wanted]
        missing = [member for member in members if member not in self.boards.get(target.key, {})]
        return Standings(stamp, len(rows), self._shown(target, found), missing, self._no_profiles(target))

    async def _read(self, call: str, target: Target) -> tuple[Stamp, list[Entry]]:
        self.calls[call] += 1
        began = self.clock.monotonic()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await self.clock.sleep(self.delay_s)
            if self._failures:
                raise self._failures.pop(0)
            if self._failing is not None:
                raise self._failing
            return self._stamp(began), self._rows(target)
        finally:
            self.running -= 1

    def _stamp(self, began: float) -> Stamp:
        if self.stale_since is not None:
            return Stamp(began, self.stale_since, stale=True)
        return Stamp(began, self.clock.wall())

    def _rows(self, target: Target) -> list[Entry]:
        if target.key in self.wrong_types:
            raise WrongType
        board = self.boards.get(target.key, {})
        if not board and self.absence_unknown:
            raise OriginUnavailable
        descending = target.board.order == "desc"
        ordered = sorted(board.items(), key=lambda item: (item[1], item[0]), reverse=descending)
        if target.board.ties == "ordinal":
            return [Entry(place, member, score) for place, (member, score) in enumerate(ordered, 1)]
        scores = [score for _, score in ordered]
        return [Entry(scores.index(score) + 1, member, score) for member, score in ordered]

    def _shown(self, target: Target, rows: Iterable[Entry]) -> list[Entry]:
        if target.profiles_key is None or self.profiles_fail:
            return list(rows)
        texts = {
            member: text
            for member, text in self.profiles.get(target.profiles_key, {}).items()
            if len(text) <= PROFILE_LIMIT_BYTES
        }
        return [row._replace(profile=texts.get(row.member)) for row in rows]

    def _no_profiles(self, target: Target) -> bool:
        return target.profiles_key is not None and self.profiles_fail
