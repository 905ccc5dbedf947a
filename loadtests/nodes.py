"""A Redis primary with its replicas on loopback: started, filled, and counted.

Knows: redis-server, ZADD, INFO.
Must not know: HTTP, the gateway.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.demo.embedded import find_redis_server
from loadtests.programs import LOOPBACK, Missing, Programs, free_port, program, until

PAIRS = 500
"""Rows in one ZADD."""

PIPELINE = 50
"""ZADDs under way at once."""

RANGES = ("zrange", "zrevrange", "zrangebyscore", "zrevrangebyscore")


@dataclass(slots=True)
class Node:
    """One redis-server; ``process`` changes when it is started again."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its address as the gateway's settings take it."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def client(self, *, timeout_s: float = 60.0) -> redis.Redis:
        """Return a client of this node that fails rather than retry."""
        return redis.Redis(host=LOOPBACK, port=self.port, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))


@dataclass(frozen=True, slots=True)
class Nodes:
    """A primary and its replicas."""

    primary: Node
    replicas: Sequence[Node]

    @property
    def all(self) -> list[Node]:
        """Every node, the primary first."""
        return [self.primary, *self.replicas]

    def fill(self, key: str, rows: Iterable[tuple[str, int]]) -> None:
        """Add rows to a board on the primary, and wait until the replicas have them too."""
        self.fill_all([(key, rows)])

    def fill_all(self, boards: Iterable[tuple[str, Iterable[tuple[str, int]]]]) -> None:
        """Add rows to many boards, and wait once at the end."""
        with socket.create_connection((LOOPBACK, self.primary.port), timeout=60) as connection:
            for key, rows in boards:
                send_rows(connection, key, rows)
        self.settle()

    def settle(self, *, within_s: float = 120.0) -> None:
        """Wait until every replica is in step with the primary."""
        until(lambda: all(in_step(node, self.primary) for node in self.replicas), "replicas in step", within_s=within_s)

    def current_primary(self) -> Node:
        """Return the node that takes writes now; raise ``redis.ConnectionError`` if there is none."""
        for node in self.all:
            with suppress(redis.RedisError), closing(node.client(timeout_s=1)) as client:
                role: Any = client.role()
                if role[0] == b"master":
                    return node
        raise redis.ConnectionError("no node is a primary")

    def range_commands(self) -> int:
        """Return how many range commands all nodes have executed, those inside scripts included."""
        return sum(commands_of(node.client(), RANGES) for node in self.all)


def start_nodes(programs: Programs, *, replicas: int = 2) -> Nodes:
    """Start a primary and its replicas, empty and in step."""
    primary = _start(programs)
    nodes = Nodes(primary, [_start(programs, "--replicaof", f"{LOOPBACK} {primary.port}") for _ in range(replicas)])
    nodes.settle()
    return nodes


def restart(programs: Programs, node: Node, primary: Node) -> None:
    """Start a node that has ended again, empty, as a replica of ``primary``."""
    node.process = _start(programs, "--replicaof", f"{LOOPBACK} {primary.port}", port=node.port).process


def start_sentinel(programs: Programs, primary: Node, service: str) -> int:
    """Start a Sentinel that watches this primary, and return its port once it knows the replicas."""
    port = free_port()
    conf = programs.folder / f"sentinel-{port}.conf"
    conf.write_text(
        f"port {port}\nbind {LOOPBACK}\ndir {programs.folder}\n"
        f"sentinel monitor {service} {LOOPBACK} {primary.port} 1\n"
        f"sentinel down-after-milliseconds {service} 2000\nsentinel failover-timeout {service} 10000\n"
    )
    programs.start(f"sentinel-{port}", program("redis-sentinel"), conf, port=port)
    client = redis.Redis(host=LOOPBACK, port=port)
    connected = _connected_replicas(primary)
    until(lambda: len(_known_replicas(client, service)) >= connected, "Sentinel knows the replicas", within_s=30)
    return port


def _connected_replicas(primary: Node) -> int:
    told: dict[str, Any] = primary.client().info("replication")
    return int(told["connected_slaves"])


def _known_replicas(client: redis.Redis, service: str) -> list[Any]:
    known: Any = client.sentinel_slaves(service)
    return list(known)


def _start(programs: Programs, *more: str, port: int = 0) -> Node:
    port = port or free_port()
    name = f"redis-{port}"
    folder = programs.folder / name
    folder.mkdir(exist_ok=True)
    # fmt: off
    process = programs.start(
        name, redis_server(), "--port", str(port), "--bind", LOOPBACK, "--dir", folder, "--save", "",
        "--appendonly", "no", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
        "--repl-backlog-size", "64mb", "--client-output-buffer-limit", "replica", "0", "0", "0", *more, port=port,
    )
    # fmt: on
    return Node(port, process)


def redis_server() -> str:
    """Return the system's program, before one that an activated environment brings; without it, the embedded one."""
    with suppress(Missing):
        return program("redis-server")
    return str(find_redis_server())


def send_rows(connection: socket.socket, key: str, rows: Iterable[tuple[str, int]]) -> None:
    """Write rows with pipelined ZADDs; raise ``RuntimeError`` if one is refused."""
    reader = hiredis.Reader()
    for burst in batched_rows(rows, PAIRS * PIPELINE):
        commands = [
            hiredis.pack_command(("ZADD", key, *(part for name, score in pairs for part in (str(score), name))))  # type: ignore[arg-type]  # its stub knows 1-tuples only
            for pairs in batched_rows(burst, PAIRS)
        ]
        connection.sendall(b"".join(commands))
        for _ in commands:
            answer = _answer(connection, reader)
            if not isinstance(answer, int):  # hiredis returns errors, it does not raise them
                raise RuntimeError(f"ZADD {key}: {answer}")  # noqa: TRY004 – it is not the caller's type that is wrong


def batched_rows(rows: Iterable[tuple[str, int]], size: int) -> Iterable[tuple[tuple[str, int], ...]]:
    """Yield rows in groups of ``size``, the last one smaller."""
    source = iter(rows)
    while group := tuple(islice(source, size)):
        yield group


def _answer(connection: socket.socket, reader: Any) -> Any:
    while (answer := reader.gets()) is False:
        received = connection.recv(65536)
        if not received:
            raise RuntimeError("Redis closed the connection")
        reader.feed(received)
    return answer


def in_step(replica: Node, primary: Node) -> bool:
    """Say whether a replica's link is up and it has applied all that the primary has sent."""
    told: dict[str, Any] = replica.client().info("replication")
    if told.get("master_link_status") != "up":
        return False
    sent: dict[str, Any] = primary.client().info("replication")
    return bool(told["slave_repl_offset"] >= sent["master_repl_offset"])


def commands_of(client: redis.Redis, names: Iterable[str]) -> int:
    """Return how often a node has executed these commands."""
    told: dict[str, Any] = client.info("commandstats")
    return sum(int(told.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in names)
