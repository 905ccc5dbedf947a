"""SortedSetOrigin: a leaderboard that is one sorted set.

Knows: which script answers which question, what replies mean, ranks in rows, when absence needs confirming.
Must not know: nodes, connections, retries, HTTP, freshness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from gateway.clock import Clock
from gateway.layouts.profiles import Profiles
from gateway.layouts.scripts import SCRIPTS
from gateway.model import Entry, Stamp, Standings, Target, Ties, Window
from gateway.replicas.allowance import Lane
from gateway.replicas.commands import Command
from gateway.replicas.reads import ReplicaReads

_entry_of: Callable[[Iterable[Any]], Entry] = partial(tuple.__new__, Entry)
"""``Entry._make`` without its length check, which is written in Python and called for every row."""


class SortedSetOrigin:
    """Implement ``model.Origin`` over one sorted set a board. Every read is one script on one node."""

    def __init__(self, reads: ReplicaReads, *, clock: Clock, request_budget_s: float) -> None:
        self._reads = reads
        self._profiles = Profiles(reads, clock=clock)
        self._budget_s = request_budget_s

    async def member(self, target: Target, member: bytes) -> Standings:
        """Read one member's rank, score and the total."""
        board = target.board
        command = Command(SCRIPTS[board.order, board.ties].member, target.key, (member,))
        reply, stamp, final = await self._reads.read(command, lane="member", primary=board.read_from == "primary")
        if not reply[0] and not final:
            reply, stamp = await self._confirm(command, reply)
        if len(reply) == 1:
            return Standings(stamp, reply[0], (), (member,))
        total, index, score = reply
        entries: Sequence[Entry] = (Entry(index + 1, member, float(score)),)
        if target.profiles_key is None:
            return Standings(stamp, total, entries, ())
        entries, missing = await self._profiles.beside(target.profiles_key, entries, stamp.began + self._budget_s)
        return Standings(stamp, total, entries, (), missing)

    async def members(self, target: Target, members: Sequence[bytes]) -> Standings:
        """Read 1 to 100 distinct members."""
        command = Command(SCRIPTS[target.board.order, target.board.ties].members, target.key, tuple(members))
        reply, stamp = await self._read(target, command, "member")
        if not reply[0]:
            return Standings(stamp, 0, (), tuple(members))
        found = list(zip(members, reply[1::2], reply[2::2], strict=True))
        # By rank; those who share one keep the board's order, which among equal scores is the member's bytes.
        entries = [Entry(index + 1, member, float(score)) for member, index, score in found if index >= 0]
        entries.sort(key=lambda entry: entry.member, reverse=target.board.order == "desc")
        entries.sort(key=lambda entry: entry.rank)
        absent = tuple(member for member, index, _ in found if index < 0)
        rows, missing = await self._with_profiles(target, entries, stamp)
        return Standings(stamp, reply[0], rows, absent, missing)

    async def window(self, target: Target, first: int, last: int) -> Window:
        """Read places ``first`` to ``last``."""
        script = SCRIPTS[target.board.order, target.board.ties].window
        command = Command(script, target.key, (b"%d" % (first - 1), b"%d" % (last - 1)))
        reply, stamp = await self._read(target, command, "snapshot")
        entries = rows_of(reply[2], first - 1, reply[1], target.board.ties)
        rows, missing = await self._with_profiles(target, entries, stamp)
        return Window(stamp, reply[0], rows, missing)

    async def neighbors(self, target: Target, member: bytes, above: int, below: int) -> Window:
        """Read the member with its neighbors."""
        script = SCRIPTS[target.board.order, target.board.ties].neighbors
        command = Command(script, target.key, (member, b"%d" % above, b"%d" % below))
        reply, stamp = await self._read(target, command, "neighbors")
        if len(reply) == 1:
            return Window(stamp, reply[0], ())
        entries = rows_of(reply[2], reply[3], reply[1], target.board.ties)
        rows, missing = await self._with_profiles(target, entries, stamp)
        return Window(stamp, reply[0], rows, missing)

    async def _read(self, target: Target, command: Command, lane: Lane) -> tuple[Any, Stamp]:
        primary = target.board.read_from == "primary"
        reply, stamp, final = await self._reads.read(command, lane=lane, primary=primary)
        if not reply[0] and not final:
            return await self._confirm(command, reply)
        return reply, stamp

    async def _confirm(self, command: Command, reply: Any) -> tuple[Any, Stamp]:
        """Return the reply if the key's primary calls the key absent as well, else the primary's own."""
        primarys, stamp = await self._reads.confirm_absent(command)
        return reply if primarys is None else primarys, stamp

    async def _with_profiles(
        self, target: Target, entries: Sequence[Entry], stamp: Stamp
    ) -> tuple[Sequence[Entry], bool]:
        if target.profiles_key is None or not entries:
            return entries, False
        return await self._profiles.beside(target.profiles_key, entries, stamp.began + self._budget_s)


def rows_of(rows: Sequence[bytes], place: int, index: int, ties: Ties) -> list[Entry]:
    """Return the entries of ``member, score, member, score …``.

    ``place`` is the first row's 0-based place, ``index`` its 0-based rank: under the competition rule a window may
    begin inside a tie, and the rank that its first row shares was counted with it.
    """
    if ties == "ordinal":
        members, scores = rows[::2], map(float, rows[1::2])
        ranks = range(place + 1, place + 1 + len(members))
        return list(map(_entry_of, zip(ranks, members, scores, repeat(None))))
    entries: list[Entry] = []
    rank, before = index + 1, None
    for at, (member, text) in enumerate(zip(rows[::2], rows[1::2], strict=True), place + 1):
        score = float(text)
        if before is not None and score != before:
            rank = at
        entries.append(Entry(rank, member, score))
        before = score
    return entries
