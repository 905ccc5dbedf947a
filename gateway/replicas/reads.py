"""ReplicaReads: one read of one key, from the node that is best for it, inside its budget.

Knows: lanes, the first attempt, who else has to be started and stopped.
Must not know: HTTP, freshness, leaderboards, what a script means.

The first attempt is the whole of nearly every read and is written flat: no task, no timer, no wrapper. Everything
else is ``attempts``.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from typing import Any

from gateway.clock import Clock
from gateway.counters import Cell, Counters
from gateway.errors import Overloaded
from gateway.model import Stamp
from gateway.replicas import choice
from gateway.replicas.allowance import LANES, Allowance, Lane
from gateway.replicas.attempts import Attempts, Choice, Reading
from gateway.replicas.commands import Request
from gateway.replicas.confirm import Confirmations
from gateway.replicas.failures import AttemptError
from gateway.replicas.limits import Limits
from gateway.replicas.monitor import Monitor
from gateway.replicas.node import Nodes
from gateway.replicas.report import NodeReport, declare, reports
from gateway.replicas.topology import Role, Shard, Topology


class ReplicaReads:
    """Read keys from replicas. Everything runs in one event loop; cancelling a caller disturbs nobody else."""

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
        self._wall: Callable[[], float] = clock.wall
        self._for_key = topology.for_key
        self._timeout_s = limits.read_timeout_s
        self._lanes = {lane: Allowance(limit) for lane, limit in LANES.items()}
        self._attempts = Attempts(topology, nodes, limits, clock=clock, counters=counters, random=random)
        self._monitor = Monitor(topology, nodes, limits, clock=clock)
        self._confirmations = Confirmations(self._read_owner, limits, clock=clock, counters=counters)
        self._ok: dict[str, Cell] = self._attempts.ok
        declare(counters, topology, limits, clock, self._lanes)

    async def start(self) -> None:
        """Begin to connect; return once every node has been looked at, or after a moment. Never raises for Redis."""
        await self._topology.start()
        await self._monitor.start()

    async def stop(self) -> None:
        """Close every connection; reads still under way end as unavailable."""
        await self._monitor.stop()
        await self._confirmations.stop()
        await self._topology.stop()
        await self._nodes.close()

    async def read(self, request: Request, *, lane: Lane, primary: bool = False, within_s: float = 0.0) -> Reading:
        """Read one key from a replica (or, ``primary``, from its primary only).

        ``within_s`` is a budget smaller than the usual one, for reads that are only welcome. Raises
        OriginUnavailable, OriginTimeout, WrongType or Overloaded.
        """
        allowance = self._lanes[lane]
        if allowance.outstanding >= allowance.limit:
            allowance.refused += 1
            raise Overloaded
        allowance.outstanding += 1
        attempts = self._attempts
        attempts.begun += 1
        now = self._monotonic()
        try:
            shard = self._for_key(request.key)
            if primary or within_s:
                return await attempts.answer(request, shard, now, lane=lane, primary=primary, within_s=within_s)
            if shard.epoch == self._nodes.epoch and now < shard.until:
                fit = shard.candidates
            else:
                fit = choice.candidates(shard, now, self._limits, self._nodes.epoch)
            if not fit:
                return await attempts.answer(request, shard, now, lane=lane)
            node = fit[0] if len(fit) == 1 else choice.better(fit, self._random)
            role: Role = "replica" if shard.expects_replicas else "primary"
            # Before the reply: whenever this process comes to it, the data is no newer than that.
            as_of = self._wall()
            try:
                reply = await node.send(request.packed(), now, now + self._timeout_s)
            except AttemptError as failure:
                tried = Choice(node, role, stale=False)
                return await attempts.answer(request, shard, now, lane=lane, tried=tried, failed=failure)
            self._ok[role][0] += 1
            return reply, Stamp(now, as_of), role == "primary"
        finally:
            allowance.outstanding -= 1

    async def confirm_absent(self, request: Request) -> tuple[Any | None, Stamp]:
        """Ask the key's primary whether the key is really absent, which a replica's answer to ``request`` implied.

        Returns None for a confirmed absence, else the primary's own reply to ``request``. Confirmations of one key
        are shared, remembered for a second and limited. Raises OriginUnavailable while no primary answers.
        """
        return await self._confirmations.confirm(request)

    def nodes(self) -> Sequence[NodeReport]:
        """Describe every node, shard by shard, the primary first."""
        return reports(self._topology.shards(), self._clock.monotonic(), self._limits)

    def up(self) -> bool:
        """Whether every shard has a node that can be read now, be it with the stale mark."""
        now = self._clock.monotonic()
        shards = self._topology.shards()
        return bool(shards) and all(self._readable(shard, now) for shard in shards)

    def _readable(self, shard: Shard, now: float) -> bool:
        fit = choice.candidates(shard, now, self._limits, self._nodes.epoch)
        return bool(fit or choice.owner_of(shard, now) or choice.behind(shard, now, self._limits))

    async def _read_owner(self, request: Request) -> tuple[Any, Stamp]:
        shard = self._for_key(request.key)
        self._attempts.begun += 1
        reply, stamp, _ = await self._attempts.answer(request, shard, self._monotonic(), lane="member", primary=True)
        return reply, stamp
