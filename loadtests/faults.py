"""The faults of a soak, one after the other: a primary killed, a replica frozen, a planned failover, a replica killed.

Knows: Redis nodes, Sentinel.
Must not know: the load, the gateway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from typing import Any

import redis

from loadtests.nodes import Node, Nodes, restart
from loadtests.programs import LOOPBACK, Programs, frozen, until

AWAY_S = 5.0
"""How long a node is away: longer than a breaker is open, a lag tolerated, and Sentinel patient."""

PROMOTED_S = 60.0
"""Sentinel begins no failover within twice its ``failover-timeout`` (20 s here) of the one before."""


class Faults:
    """Faults in turn; each leaves everything as whole as it was before, if not in the same roles."""

    def __init__(
        self, programs: Programs, nodes: Nodes, *, sentinel_port: int = 0, service: str = "", away_s: float = AWAY_S
    ) -> None:
        self._programs = programs
        self._nodes = nodes
        self._sentinel = (sentinel_port, service)
        self._away_s = away_s
        self._turn: Iterator[Callable[[], str]] = cycle(self.rotation())

    def rotation(self) -> tuple[Callable[[], str], ...]:
        """Return the faults in their order: the hardest first, so that the shortest soak has had it.

        Without Sentinel nobody would take a dead primary's place: it is frozen instead.
        """
        if self._sentinel[0]:
            return self.kill_primary, self.freeze_replica, self.failover, self.kill_replica
        return self.freeze_primary, self.freeze_replica, self.kill_replica

    def next(self) -> str:
        """Commit the next fault, wait until it is over, and return what it was."""
        return next(self._turn)()

    def kill_primary(self) -> str:
        """Kill the primary; once Sentinel has made a replica the primary, start it again empty, as a replica."""
        before = self._nodes.current_primary()
        before.process.kill()
        before.process.wait()
        time.sleep(self._away_s)
        until(lambda: self._led_by_another_than(before), "a replica promoted", within_s=PROMOTED_S)
        restart(self._programs, before, self._nodes.current_primary())
        self._settle()
        return f"primary {before.port} killed, {self._nodes.current_primary().port} promoted"

    def kill_replica(self) -> str:
        """Kill a replica, and start it again empty after a while."""
        node = self._replica()
        node.process.kill()
        node.process.wait()
        time.sleep(self._away_s)
        restart(self._programs, node, self._nodes.current_primary())
        self._settle()
        return f"replica {node.port} killed and started again"

    def freeze_replica(self) -> str:
        """Freeze a replica for a while: it holds its connections and says nothing."""
        node = self._replica()
        with frozen(node.process):
            time.sleep(self._away_s)
        self._settle()
        return f"replica {node.port} frozen"

    def freeze_primary(self) -> str:
        """Freeze the primary for a while: replicas go on being read, marked stale."""
        with frozen(self._nodes.primary.process):
            time.sleep(self._away_s)
        self._settle()
        return "primary frozen"

    def failover(self) -> str:
        """Let Sentinel make a replica the primary while the primary is alive."""
        before = self._nodes.current_primary()
        until(self._failover_begins, "Sentinel begins a failover", within_s=PROMOTED_S)
        until(lambda: self._moved_from(before), "failover", within_s=30)
        self._settle()
        return f"failover from {before.port} to {self._nodes.current_primary().port}"

    def _failover_begins(self) -> bool:
        """Ask for a failover; False while the one before goes on, or Sentinel has not yet heard of a fit replica."""
        port, service = self._sentinel
        with closing(redis.Redis(host=LOOPBACK, port=port)) as client:
            try:
                client.execute_command("SENTINEL", "FAILOVER", service)  # type: ignore[no-untyped-call]
            except redis.ResponseError:
                return False
        return True

    def _moved_from(self, before: Node) -> bool:
        try:
            return self._led_by_another_than(before) and role_of(before) == b"slave"
        except redis.RedisError:
            return False

    def _led_by_another_than(self, before: Node) -> bool:
        """Say whether Sentinel names another primary, and that is what the node itself says."""
        port, service = self._sentinel
        with closing(redis.Redis(host=LOOPBACK, port=port)) as client:
            named: Any = client.sentinel_get_master_addr_by_name(service)
        try:
            return int(named[1]) == self._nodes.current_primary().port != before.port
        except redis.RedisError:
            return False

    def _replica(self) -> Node:
        primary = self._nodes.current_primary()
        return next(node for node in self._nodes.all if node.port != primary.port)

    def _settle(self) -> None:
        """Wait until every node but the primary is linked to it."""
        until(self._linked, "replicas linked", within_s=60)

    def _linked(self) -> bool:
        try:
            primary = self._nodes.current_primary()
            others = [node for node in self._nodes.all if node.port != primary.port]
            return all(node.client().info("replication").get("master_link_status") == "up" for node in others)
        except redis.RedisError:
            return False


def role_of(node: Node) -> object:
    """Return what a node says that it is: ``b"master"`` or ``b"slave"``."""
    with closing(node.client(timeout_s=1)) as client:
        role: list[object] = client.role()
        return role[0]
