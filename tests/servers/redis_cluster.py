"""Redis Cluster: three primaries with a replica each, built by hand since redis-cli waits for seconds.

Knows: CLUSTER commands, slots.
Must not know: Sentinel, the gateway.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, Self

from redis.crc import key_slot

from tests.servers.certificates import Certificates
from tests.servers.process import eventually
from tests.servers.redis import REDIS_7_0, Binary, RedisServer

SLOTS = 16_384


class RedisCluster:
    """Three primaries and three replicas; ``shards`` holds them as pairs, slots dealt out in thirds."""

    def __init__(
        self,
        *,
        binary: Binary = REDIS_7_0,
        password: str | None = None,
        acl: Sequence[str] = (),
        tls: Certificates | None = None,
        config: Sequence[str] = (),
        node_timeout_ms: int | None = None,
    ) -> None:
        """``node_timeout_ms``: where nobody is to be called down, be it that the whole machine stands still."""

        def server() -> RedisServer:
            return RedisServer(cluster=True, binary=binary, password=password, acl=acl, tls=tls, config=config)

        self.shards = [(server(), server()) for _ in range(3)]
        self.node_timeout_ms = node_timeout_ms
        self.ranges = [range(SLOTS * n // 3, SLOTS * (n + 1) // 3) for n in range(3)]

    @property
    def nodes(self) -> list[RedisServer]:
        """The three first primaries, then the three first replicas."""
        return [shard[0] for shard in self.shards] + [shard[1] for shard in self.shards]

    @property
    def settings(self) -> dict[str, Any]:
        """The ``[redis]`` table that reaches this cluster, without credentials; two seeds."""
        return {"cluster": [self.nodes[0].address, self.nodes[1].address]}

    def start(self) -> None:
        """Start six nodes and make one cluster of them."""
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_until(node.answers)
        for epoch, (primary, _) in enumerate(self.shards, 1):
            primary.call("CLUSTER SET-CONFIG-EPOCH", epoch)
            slots = self.ranges[epoch - 1]
            primary.call("CLUSTER ADDSLOTS", *slots)  # not by range: Redis 6.2 does not know ranges
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        self._everyone(lambda node: self._known(node) == len(self.nodes), "every node knows every other")
        for primary, replica in self.shards:
            replica.replicaof = primary
            replica.call("CLUSTER REPLICATE", self.node_id(primary))
        self.wait_ok()
        self._write_once()
        self._everyone(lambda node: self._listed(node) == len(self.nodes), "every node lists every other")
        if self.node_timeout_ms is not None:  # only now: they meet at the pace that it sets
            for node in self.nodes:
                node.call("CONFIG", "SET", "cluster-node-timeout", self.node_timeout_ms)

    def _write_once(self) -> None:
        """Write to each shard: a replica at offset 0 is not listed in CLUSTER SLOTS."""
        for (primary, _), slots in zip(self.shards, self.ranges, strict=True):
            key = next(f"first-{n}" for n in itertools.count() if key_slot(b"first-%d" % n) in slots)
            primary.call("SET", key, "1")
            primary.call("DEL", key)

    @classmethod
    def _listed(cls, node: RedisServer) -> int:
        return len({int(server[1]) for held in cls.slots(node) for server in held[2:]})

    def wait_ok(self, *, within_s: float = 60.0) -> None:
        """Wait until every node that runs says that the cluster is whole, and replicas are in sync."""
        for node in self.nodes:
            if node.alive and not node.frozen:
                node.wait_until(node.answers)
        self._everyone(lambda node: b"cluster_state:ok" in self._state(node), "the cluster is whole", within_s)
        self._everyone(_linked, "replicas are in sync", within_s)

    def meet_again(self) -> None:
        """Introduce the nodes to each other anew after all of them came back at other addresses."""
        for node in self.nodes:
            node.wait_until(node.answers)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        ports = {node.port for node in self.nodes}
        self._everyone(lambda node: self._ports(node) == ports, "every node knows every new address")
        for node in self.nodes:  # gossip alone does not point a replica at its primary's new address
            own = next(state for state in node.call("CLUSTER NODES").values() if "myself" in state["flags"])
            if own["master_id"] != "-":
                node.call("CLUSTER REPLICATE", own["master_id"])
        self.wait_ok()

    @staticmethod
    def _ports(node: RedisServer) -> set[int]:
        return {int(address.partition("@")[0].rpartition(":")[2]) for address in node.call("CLUSTER NODES")}

    def _everyone(self, condition: Any, what: str, within_s: float = 60.0) -> None:
        for node in self.nodes:
            if node.alive and not node.frozen:
                eventually(lambda at=node: condition(at), within_s=within_s, what=f"{what}: {node.port}")  # type: ignore[misc]

    @staticmethod
    def _state(node: RedisServer) -> bytes:
        reply = node.call("CLUSTER INFO")
        if isinstance(reply, dict):
            return "\n".join(f"{key}:{value}" for key, value in reply.items()).encode()
        return bytes(reply)

    @staticmethod
    def _known(node: RedisServer) -> int:
        """Return how many nodes it knows by their own names: before a handshake ends they have others."""
        return sum("handshake" not in state["flags"] for state in node.call("CLUSTER NODES").values())

    @staticmethod
    def node_id(node: RedisServer) -> str:
        """Return a node's id in the cluster."""
        reply = node.call("CLUSTER", "MYID")
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    def owner(self, key: str | bytes) -> RedisServer:
        """Return the node that owns the key's slot now, as the nodes that run say."""
        slot = key_slot(key if isinstance(key, bytes) else key.encode())

        def found() -> RedisServer | None:
            for node in self.nodes:
                if node.alive and not node.frozen and node.info()["role"] == "master" and self._owns(node, slot):
                    return node
            return None

        return eventually(found, what=f"slot {slot} has an owner")  # type: ignore[return-value]

    def _owns(self, node: RedisServer, slot: int) -> bool:
        own = self.node_id(node)
        for start, end, primary, *_ in self.slots(node):
            if start <= slot <= end:
                return bool(primary[2].decode() == own)
        return False

    @staticmethod
    def slots(node: RedisServer) -> list[Any]:
        """Return one node's CLUSTER SLOTS, raw."""
        return list(node.call("CLUSTER", "SLOTS"))

    def replica_of(self, owner: RedisServer) -> RedisServer:
        """Return a running replica of that primary."""
        for node in self.nodes:
            if node.alive and node is not owner and int(node.info().get("master_port", 0)) == owner.port:
                return node
        raise AssertionError(f"{owner.port} has no replica")

    def other_primary(self, owner: RedisServer) -> RedisServer:
        """Return some primary that is not this one."""
        return next(node for node in self.nodes if node.alive and node is not owner and node.info()["role"] == "master")

    def write(self, *args: str | bytes | float) -> Any:
        """Send one command to the owner of its first key and wait until its replica has the effect."""
        owner = self.owner(args[1] if isinstance(args[1], bytes) else str(args[1]))
        reply = owner.call(*args)
        offset = int(owner.info()["master_repl_offset"])
        for node in self.nodes:
            if node.alive and not node.frozen and node is not owner:
                eventually(lambda at=node: self._has(at, owner, offset), what=f"{node.port} has what was written")  # type: ignore[misc]
        return reply

    @staticmethod
    def _has(node: RedisServer, owner: RedisServer, offset: int) -> bool:
        """Whether the node follows another primary, or has all of this one's stream up to an offset."""
        state = node.info()
        follows = state["role"] == "slave" and int(state["master_port"]) == owner.port
        return not follows or int(state["slave_repl_offset"]) >= offset

    def begin_migration(self, key: str, target: RedisServer) -> None:
        """Mark the key's slot MIGRATING at its owner and IMPORTING at the target; no key moves yet."""
        source, slot = self.owner(key), key_slot(key.encode())
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", self.node_id(source))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", self.node_id(target))

    def move_keys(self, key: str, source: RedisServer, target: RedisServer) -> None:
        """Move the keys of this key's slot; the slot's owner stays what it was."""
        slot = key_slot(key.encode())
        auth = ["AUTH", source.password] if source.password else []
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, *auth, "KEYS", *keys)

    def end_migration(self, key: str, target: RedisServer) -> None:
        """Give the slot to the target, at the target first, then everywhere."""
        slot, owner = key_slot(key.encode()), self.node_id(target)
        for node in sorted(self.nodes, key=lambda at: at is not target):
            if node.alive and not node.frozen and node.info()["role"] == "master":
                node.call("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def migrate(self, key: str, target: RedisServer) -> None:
        """Move a key's whole slot to another primary."""
        source = self.owner(key)
        self.begin_migration(key, target)
        self.move_keys(key, source, target)
        self.end_migration(key, target)

    def reset(self) -> None:
        """Empty the cluster and its statistics; slots and roles stay as tests left them."""
        for node in self.nodes:
            if node.info()["role"] == "master":
                node.call("FLUSHALL")
        for node in self.nodes:
            node.call("CONFIG", "RESETSTAT")

    def close(self) -> None:
        """End all nodes."""
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _linked(node: RedisServer) -> bool:
    state = node.info()
    return state["role"] == "master" or state.get("master_link_status") == "up"
