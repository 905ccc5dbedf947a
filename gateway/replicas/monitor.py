"""Monitor: looks at every node off the request path, and says in the log when one changes.

Knows: when to sample, in which order, whom to tell.
Must not know: how health is judged (``health``, ``choice``), what is read.

Every quarter of the lag limit, each shard's primary is asked first and its replicas when it has answered, so that a
replica in step has passed the sample just taken. No command is longer than ``INFO replication``.
"""

from __future__ import annotations

import asyncio
import logging

from gateway.clock import Clock
from gateway.replicas.choice import State, state_of, trouble_of
from gateway.replicas.commands import INFO_REPLICATION, PING
from gateway.replicas.failures import RESTS_S, SEEN_BY_PING, ErrorReply
from gateway.replicas.handshake import Greeting
from gateway.replicas.health import History, Replication, replication_of
from gateway.replicas.limits import Limits
from gateway.replicas.node import Node, Nodes
from gateway.replicas.topology import Shard, Topology
from gateway.replicas.waiting import wait_for_all

log = logging.getLogger("gateway.replicas")

_FIRST_LOOK_S = 1.0
"""How long ``start`` waits for the nodes' first answers."""
SETTLED_S = 2.0
"""How long a node that is in trouble must be in another state before that is said: a node that comes and goes is one
line, not a stream."""


class Monitor:
    """Sample, judge, report. It is also who nodes tell of their comings and goings."""

    def __init__(self, topology: Topology, nodes: Nodes, limits: Limits, *, clock: Clock) -> None:
        self._topology, self._nodes, self._limits, self._clock = topology, nodes, limits, clock
        self._history = History()
        self._looks: dict[Node, asyncio.Task[None]] = {}
        self._states: dict[Node, State] = {}
        self._since: dict[Node, float] = {}
        self._said: dict[Node, State] = {}
        self._task: asyncio.Task[None] | None = None
        self._speaks = False  # connecting and closing are no news: what was found is said once, after the first look
        nodes.listener = self

    async def start(self) -> None:
        """Begin; return when every node has been looked at, or after a second."""
        until = self._clock.monotonic() + _FIRST_LOOK_S
        while any(node.opening for node in self._nodes.all()) and self._clock.monotonic() < until:
            await self._nodes.wait_for_change(max(0.0, until - self._clock.monotonic()))
        await self._look_at_all()
        self._speaks = True
        self._said.clear()
        for shard in self._topology.shards():
            self._note_states(shard)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="replica health")

    async def stop(self) -> None:
        """End."""
        self._speaks = False
        tasks = [*self._looks.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._limits.sample_s)
            await self._look_at_all()

    async def _look_at_all(self) -> None:
        shards = self._topology.shards()
        await asyncio.gather(*(self._look_at_shard(shard) for shard in shards))
        for shard in shards:
            self._note_states(shard)
        gone = self._states.keys() - {node for shard in shards for node in shard.nodes}
        for node in gone:
            del self._states[node], self._since[node]
            self._said.pop(node, None)

    async def _look_at_shard(self, shard: Shard) -> None:
        """Ask the primary, then the replicas; neither a silent primary nor a silent replica holds up the others."""
        patience_s = self._limits.sample_s / 2
        if shard.primary is not None:
            await wait_for_all([self._look(shard.primary, shard)], self._clock, patience_s)
        looks = [self._look(node, shard) for node in shard.replicas]
        if looks:
            await wait_for_all(looks, self._clock, patience_s)

    def _look(self, node: Node, shard: Shard) -> asyncio.Task[None]:
        look = self._looks.get(node)
        if look is None:
            look = self._looks[node] = asyncio.get_running_loop().create_task(self._ask(node, shard))
            look.add_done_callback(lambda _: self._looks.pop(node, None))
        return look

    async def _ask(self, node: Node, shard: Shard) -> None:
        now = self._clock.monotonic()
        if not node.ready or (node.breaker.opened and not node.breaker.admits_probe(now, self._limits.read_timeout_s)):
            return
        deadline = now + self._limits.read_timeout_s
        connection, *others = node.ready
        answers = [connection.send(request, now, deadline) for request in (INFO_REPLICATION, PING)]
        answers += [other.send(PING, now, deadline) for other in others]  # so that a dead one is found before a read
        info, ping, *_ = await asyncio.gather(*answers, return_exceptions=True)
        if isinstance(info, bytes):
            if node.breaker.opened and node.breaker.answered():
                self._nodes.change(node)
            self._take_info(node, shard, info, now)
        self._take_ping(node, ping)

    def _take_info(self, node: Node, shard: Shard, info: bytes, sent_at: float) -> None:
        try:
            said = replication_of(info)
        except ValueError:  # a Sentinel, or a proxy: nothing is known of it, and a replica is not read for that
            return
        self._observe(node, shard, said, sent_at)

    def _take_ping(self, node: Node, ping: object) -> None:
        """PING is answered with the error that a read would get, where that is LOADING, MASTERDOWN, BUSY."""
        health = node.health
        if isinstance(ping, ErrorReply) and ping.code in RESTS_S:
            rests = max(RESTS_S[ping.code], 2 * self._limits.sample_s)
            was_resting = health.resting_until > self._clock.monotonic()
            health.rest(self._clock.monotonic() + rests, ping.code)
            if not was_resting:
                self._nodes.change(node)
        elif isinstance(ping, BaseException) or health.resting_for not in SEEN_BY_PING:
            return
        elif health.resting_until > self._clock.monotonic():
            health.resting_until = 0.0
            self._nodes.change(node)

    def _observe(self, node: Node, shard: Shard, said: Replication, sent_at: float) -> None:
        is_primary = node is shard.primary
        if is_primary and said.role == "primary":
            shard.answered_at, shard.known = max(shard.answered_at, sent_at), True
        silent = self._clock.monotonic() - shard.answered_at > self._limits.silence_s
        node.health.observe(
            said, sent_at, self._history, leads=is_primary, primary_answers=not silent, primary_known=shard.known
        )
        if said.role != ("primary" if is_primary else "replica"):
            self._topology.contradicted(node, said.role)
        if self._states.get(node) != state_of(node, shard, self._clock.monotonic(), self._limits):
            self._nodes.change(node)

    # node.Listener

    def greeted(self, node: Node, greeting: Greeting) -> None:
        """Judge a node by what it said on a new connection, before that carries its first read."""
        if greeting.trouble in RESTS_S:
            node.health.rest(self._clock.monotonic() + RESTS_S[greeting.trouble], greeting.trouble)
        elif greeting.trouble is not None:
            log.warning("%s refused a part of our introduction with %s: see the ACL", node.address, greeting.trouble)
        for shard in self._topology.shards():
            if node in shard.nodes and greeting.replication is not None:
                self._observe(node, shard, greeting.replication, greeting.sent_at)

    def changed(self, node: Node) -> None:
        """Say so, if it shows."""
        for shard in self._topology.shards():
            if node in shard.nodes:
                self._note_state(node, shard)

    def unreachable(self, node: Node) -> None:
        """Tell the topology: the address may have changed."""
        self._topology.troubled(node)

    def _note_states(self, shard: Shard) -> None:
        for node in shard.nodes:
            self._note_state(node, shard)

    def _note_state(self, node: Node, shard: Shard) -> None:
        """Write one line if a node's state is another than last time, and it is news."""
        now = self._clock.monotonic()
        state = state_of(node, shard, now, self._limits)
        if state != self._states.get(node):
            self._states[node], self._since[node] = state, now
            self._nodes.epoch += 1
        said = self._said.get(node)
        if not self._speaks or state == said:
            return
        if said not in (None, "up") and now - self._since[node] < SETTLED_S:
            return
        self._said[node] = state
        role = "primary" if node is shard.primary else "replica"
        level = logging.INFO if state == "up" else logging.WARNING
        log.log(level, "%s %s is %s%s", role, node.address, state, self._because(node, state, now))

    @staticmethod
    def _because(node: Node, state: State, now: float) -> str:
        if trouble := trouble_of(node, state, now):
            return f" ({trouble})"
        lag_s = node.health.lag_s(now) if node.ready else None
        return "" if lag_s is None else f" (lag {lag_s:.1f} s)"
