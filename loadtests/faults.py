"""The faults of a soak, one after the other: a replica killed, one frozen, and a failover (or a frozen primary).

Knows: Redis nodes, Sentinel.
Must not know: the load, the gateway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle

import redis

from loadtests.nodes import Node, Nodes, restart
from loadtests.programs import LOOPBACK, Programs, frozen, until

AWAY_S = 5.0
"""How long a node is away: longer than a breaker is open, a lag tolerated, and Sentinel patient."""


class Faults:
    """Faults in turn; each leaves everything as whole as it was before, if not in the same roles."""

    def __init__(
        self, programs: Programs, nodes: Nodes, *, sentinel_port: int = 0, service: str = "", away_s: float = AWAY_S
    ) -> None:
        self._programs = programs
        self._nodes = nodes
        self._sentinel = (sentinel_port, service)
        self._away_s = away_s
        third: Callable[[], str] = self.failover if sentinel_port else self.freeze_primary
        self._turn: Iterator[Callable[[], str]] = cycle((self.kill_replica, third, self.freeze_replica))

    def next(self) -> str:
        """Commit the next fault, wait until it is over, and return what it was."""
        return next(self._turn)()

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
        """Let Sentinel make a replica the primary."""
        port, service = self._sentinel
        before = self._nodes.current_primary()
        with closing(redis.Redis(host=LOOPBACK, port=port)) as client:
            client.execute_command("SENTINEL", "FAILOVER", service)  # type: ignore[no-untyped-call]
        until(lambda: self._moved_from(before), "failover", within_s=30)
        self._settle()
        return f"failover from {before.port} to {self._nodes.current_primary().port}"

    def _moved_from(self, before: Node) -> bool:
        try:
            return self._nodes.current_primary().port != before.port and role_of(before) == b"slave"
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
