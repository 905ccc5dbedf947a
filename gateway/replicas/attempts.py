"""Attempts: everything about a read but its first attempt's success.

Knows: the budget, one retry on another node, what each error code asks for; Redis's errors become the gateway's here.
Must not know: lanes, HTTP, leaderboards, what a script means.

======================== =========================================================================================
what happened            what follows
======================== =========================================================================================
timed out                the retry, on another node
connection lost          the retry, on another node, or on this one again if there is no other
NOSCRIPT                 load and repeat on the same connection; not a retry, since the node is fine
MOVED, ASK               learn, and ask where it points; not a retry, at most three times
TRYAGAIN                 a short pause, then the retry
LOADING MASTERDOWN BUSY  the node rests (``failures.RESTS_S``); the retry, on another node
CLUSTERDOWN NOAUTH …
WRONGTYPE                WrongType: one log line a key and minute, no retry, no breaker
NOPERM                   one log line a key and minute; the retry, on another node
any other code           one log line a code and minute; the retry, on another node
the last two, and the    the node that refused rests (``failures.REFUSING_S``): an error is answered faster than a
retry is answered        read, so that without it a node with another account or version would be the best choice
======================== =========================================================================================

A read that comes to nothing ends as OriginTimeout where the budget is what it ran out of, else, whatever the attempts
failed with, as OriginUnavailable: with one node that hangs there is time left, but nobody to ask.
"""

from __future__ import annotations

import logging
import random as random_module
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from gateway.clock import Clock
from gateway.counters import Cell, Counters
from gateway.errors import OriginTimeout, OriginUnavailable, Overloaded, WrongType
from gateway.model import Stamp
from gateway.replicas import choice
from gateway.replicas.allowance import Lane, Rate, RetryBudget
from gateway.replicas.commands import ASKING, Command, Request
from gateway.replicas.connection import Answer
from gateway.replicas.failures import REFUSING_S, RESTS_S, AttemptError, ConnectionLost, ErrorReply
from gateway.replicas.limits import Limits
from gateway.replicas.login import Address
from gateway.replicas.node import Node, Nodes
from gateway.replicas.notes import Notes
from gateway.replicas.topology import Redirect, Role, Shard, Topology

Reading: TypeAlias = tuple[Any, Stamp, bool]
"""The reply, when and how surely it was read, and whether the key's primary gave it (its word on absence is final)."""

_HOPS = 3
_LEFT_FOR_SNAPSHOTS = 0.2
"""Of the fallback reads allowed at once: a flood of rank reads must not keep the top from its refresh."""
_TRYAGAIN_S = 0.01  # the other keys of the slot are on their way; for one key it hardly ever happens

log = logging.getLogger("gateway.replicas")


class Choice(NamedTuple):
    """A node to ask, and in which class it was found."""

    node: Node
    role: Role
    stale: bool


class Progress:
    """One read under way: who was asked, what is left, what to do next."""

    __slots__ = (
        "before",
        "deadline",
        "failed",
        "hops",
        "lane",
        "limited",
        "lost",
        "next",
        "primary",
        "refused",
        "request",
        "retried",
        "shard",
        "tried",
        "until",
        "wait_until",
    )

    def __init__(self, request: Request, shard: Shard, until: float, *, lane: Lane, primary: bool) -> None:
        self.lane: Lane = lane
        self.request, self.shard, self.until, self.primary = request, shard, until, primary
        self.tried: set[Node] = set()
        self.lost: set[Node] = set()
        """Nodes whose connection went away: asked again only where there is no other."""
        self.next: Choice | None = None
        self.before: tuple[bytes, ...] = ()
        self.deadline = until
        """Of the attempt that was made last."""
        self.hops = 0
        self.retried = False
        self.limited = False
        self.wait_until = 0.0
        self.failed: AttemptError | None = None
        self.refused: tuple[Node, str] | None = None
        """Who refused this read, and with which code, though it may be answered elsewhere."""


class Attempts:
    """Bring reads to an end. ``begun`` counts all reads, those that never come here included."""

    def __init__(
        self,
        topology: Topology,
        nodes: Nodes,
        limits: Limits,
        *,
        clock: Clock,
        counters: Counters,
        random: random_module.Random,
    ) -> None:
        self._topology, self._nodes, self._limits = topology, nodes, limits
        self._clock, self._random = clock, random
        self._monotonic: Callable[[], float] = clock.monotonic
        per_s = limits.primary_max_reads_per_s
        self._fallback = Rate(per_s, clock.monotonic(), burst=max(2.0, per_s / 10))
        self._retry_budget = RetryBudget(clock.monotonic())
        self._notes = Notes(clock)
        self._reads = counters.counter(
            "gateway_redis_reads_total", "Attempts on Redis by the node's role and how they ended", ("role", "outcome")
        )
        self._retries = counters.counter(
            "gateway_redis_retries_total", "Second attempts, made or refused by the retry budget", ("outcome",)
        )
        roles: tuple[Role, ...] = ("primary", "replica")
        self.ok: dict[str, Cell] = {role: self._reads.cell(role, "ok") for role in roles}
        self.begun = 0

    async def answer(
        self,
        request: Request,
        shard: Shard,
        began: float,
        *,
        lane: Lane,
        primary: bool = False,
        within_s: float = 0.0,
        tried: Choice | None = None,
        failed: AttemptError | None = None,
    ) -> Reading:
        """Attempt until there is an answer, or no time, node or retry is left. ``tried`` has ``failed`` already."""
        until = began + (within_s or self._limits.request_budget_s)
        progress = Progress(request, shard, until, lane=lane, primary=primary)
        if tried is not None and failed is not None:
            progress.deadline = min(began + self._limits.read_timeout_s, until)
            await self._learn(progress, tried, failed)
        while True:
            chosen = await self._choose(progress)
            now = self._monotonic()
            # Before the reply: what is heard of the node meanwhile says nothing of data that was read earlier.
            known_at = chosen.node.health.known_at if chosen.stale else None
            try:
                reply = await self._send(progress, chosen.node, now)
            except AttemptError as error:
                await self._learn(progress, chosen, error)
                continue
            self.ok[chosen.role][0] += 1
            if progress.refused is not None:
                self._rest(*progress.refused, REFUSING_S)
            return reply, self._stamp(chosen, now, known_at), chosen.role == "primary"

    def _send(self, progress: Progress, node: Node, now: float) -> Answer:
        progress.deadline = min(now + self._limits.read_timeout_s, progress.until)
        before, progress.before = progress.before, ()
        return node.connection().send_behind(before, progress.request.packed(), now, progress.deadline)

    def _stamp(self, chosen: Choice, began: float, known_at: float | None) -> Stamp:
        at = began if known_at is None else known_at
        return Stamp(began, self._clock.wall() - max(0.0, self._monotonic() - at), chosen.stale)

    # Choosing

    async def _choose(self, progress: Progress) -> Choice:
        if progress.next is not None:
            chosen, progress.next = progress.next, None
            return chosen
        while True:
            now = self._monotonic()
            if now >= progress.until:
                self._fail(progress)
            found = self._find(progress, now, progress.tried | progress.lost)
            if found is None and progress.lost:
                found = self._find(progress, now, progress.tried)
            if found is not None:
                return found
            if progress.limited:
                raise Overloaded
            await self._wait_for_a_node(progress, now)

    def _find(self, progress: Progress, now: float, excluded: set[Node]) -> Choice | None:
        shard, limits = progress.shard, self._limits
        owner = choice.owner_of(shard, now)
        if owner in excluded:
            owner = None
        if progress.primary:
            return None if owner is None else Choice(owner, "primary", stale=False)
        fit = [node for node in choice.candidates(shard, now, limits, self._nodes.epoch) if node not in excluded]
        if fit:
            role: Role = "replica" if shard.expects_replicas else "primary"
            return Choice(choice.better(fit, self._random), role, stale=False)
        if owner is not None and limits.primary_fallback and shard.expects_replicas:
            if self._fallback.take(now, leave=0.0 if progress.lane == "snapshot" else _LEFT_FOR_SNAPSHOTS):
                return Choice(owner, "primary", stale=False)
            progress.limited = True
        old = [node for node in choice.behind(shard, now, limits) if node not in excluded]
        return Choice(choice.better(old, self._random), "replica", stale=True) if old else None

    async def _wait_for_a_node(self, progress: Progress, now: float) -> None:
        """Wait a little where a node may be back any moment; fail at once where nothing suggests it.

        A reset connection is open again within a millisecond, and at start none is open yet; but while Redis is
        away, a read must not wait for it.
        """
        shard = progress.shard
        fit = (shard.primary,) if progress.primary else shard.nodes
        if not any(node is not None and node.opening for node in fit):
            self._fail(progress)
        if not progress.wait_until:
            progress.wait_until = min(now + self._limits.read_timeout_s, progress.until)
        if now >= progress.wait_until:
            self._fail(progress)
        await self._nodes.wait_for_change(progress.wait_until - now)

    def _fail(self, progress: Progress) -> NoReturn:
        """Raise what the read as a whole has come to, because of the last attempt's failure if there was one."""
        error = OriginTimeout if self._monotonic() >= progress.until else OriginUnavailable
        raise error from progress.failed

    # Learning from a failed attempt

    async def _learn(self, progress: Progress, asked: Choice, error: AttemptError) -> None:
        """Take in what a failed attempt says; raise if that ends the read."""
        progress.failed = error
        self._give_back(progress)
        if isinstance(error, ErrorReply):
            if self._answers_itself(progress, asked, error):
                return
            progress.tried.add(asked.node)
        elif isinstance(error, ConnectionLost):
            self._reads.add(asked.role, "lost")
            progress.lost.add(asked.node)
        else:
            self._reads.add(asked.role, "timeout")
            progress.tried.add(asked.node)
        if progress.retried:
            self._fail(progress)
        progress.retried = True
        if not self._retry_budget.take(self.begun, self._monotonic()):
            self._retries.add("refused")
            self._fail(progress)
        self._retries.add("made")
        if isinstance(error, ErrorReply) and error.code == "TRYAGAIN":
            progress.tried.discard(asked.node)
            await self._clock.sleep(_TRYAGAIN_S)

    def _give_back(self, progress: Progress) -> None:
        """Let the budget last longer by what the attempt's end came too late: for so long the process was held up.

        As for an attempt's own deadline (``connection``), time in which nothing could be heard counts against nobody.
        """
        now, left = self._monotonic(), progress.until - progress.deadline
        if now > progress.deadline:
            progress.until = now + left

    def _answers_itself(self, progress: Progress, asked: Choice, error: ErrorReply) -> bool:
        """Handle an error reply by its code; return whether the next attempt is decided, and is no retry."""
        code, request = error.code, progress.request
        if code == "WRONGTYPE":
            self._reads.add(asked.role, "wrong_type")
            if self._notes.due(code, request.key):
                log.error("key %r does not hold what its leaderboard needs (WRONGTYPE)", request.key)
            raise WrongType from error
        if code in ("MOVED", "ASK"):
            self._reads.add(asked.role, "redirected")
            return self._follow(progress, asked, error)
        if code == "NOSCRIPT" and isinstance(request, Command) and progress.hops < _HOPS:
            self._reads.add(asked.role, "reloaded")
            progress.hops += 1
            progress.next, progress.before = asked, (request.script.load,)
            return True
        self._reads.add(asked.role, "refused")
        self._refused(progress, asked.node, code)
        return False

    def _refused(self, progress: Progress, node: Node, code: str) -> None:
        if code in RESTS_S:
            self._rest(node, code, RESTS_S[code])
            if code == "CLUSTERDOWN":
                self._topology.troubled(node)
        elif code != "TRYAGAIN":
            progress.refused = (node, code)
            self._note(node, code, progress.request.key)

    def _note(self, node: Node, code: str, key: bytes) -> None:
        if code == "NOPERM" and self._notes.due(code, key):
            log.error("the account may not read key %r on %s (NOPERM): see the ACL", key, node.address)
        elif code != "NOPERM" and self._notes.due(code, b""):
            log.error("%s answered a read with %s, which is unknown here", node.address, code)

    def _rest(self, node: Node, code: str, seconds: float) -> None:
        node.health.rest(self._monotonic() + seconds, code)
        self._nodes.change(node)

    def _follow(self, progress: Progress, asked: Choice, error: ErrorReply) -> bool:
        redirect = redirect_of(error, asked.node)
        node = None if redirect is None else self._topology.redirected(redirect)
        progress.hops += 1
        if node is None and self._notes.due(error.code, b""):
            log.error("%s redirects reads (%s): see that redis names a Cluster as one", asked.node.address, error.code)
        if redirect is None or node is None or progress.hops > _HOPS:
            return False
        before, progress.shard = progress.shard, self._topology.for_key(progress.request.key)
        if redirect.kind == "MOVED" and progress.shard is not before and not progress.primary:
            # The slot has another shard now, and that has replicas: no need for its primary.
            progress.tried.clear()
            return True
        progress.next = Choice(node, "primary", stale=False)
        if redirect.kind == "ASK":
            load = (progress.request.script.load,) if isinstance(progress.request, Command) else ()
            progress.before = (*load, ASKING)
        return True


def redirect_of(error: ErrorReply, asked: Node) -> Redirect | None:
    """Parse ``MOVED 3999 127.0.0.1:6381``; an empty host is the one that was asked. None if it has another form."""
    kind: Literal["MOVED", "ASK"] = "MOVED" if error.code == "MOVED" else "ASK"
    slot, _, endpoint = error.detail.partition(" ")
    host, _, port = endpoint.rpartition(":")
    if not slot.isdecimal() or not port.isdecimal():
        return None
    return Redirect(kind, int(slot), Address(host.strip("[]") or asked.address.host, int(port)))
