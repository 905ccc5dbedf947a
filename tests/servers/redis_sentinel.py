"""Sentinel: a primary with two replicas, watched by three redis-sentinel processes.

Knows: sentinel.conf and the SENTINEL commands.
Must not know: Cluster, the gateway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import redis

from tests.servers.certificates import Certificates
from tests.servers.process import eventually, need
from tests.servers.redis import REDIS_7_0, Binary, RedisGroup, RedisServer, binary_path

SERVICE = "leaderboards"


class SentinelServer(RedisServer):
    """One redis-sentinel that watches a primary under the name ``leaderboards``."""

    def __init__(
        self,
        primary: RedisServer,
        *,
        quorum: int = 2,
        down_after_ms: int = 1500,
        binary: Binary = REDIS_7_0,
        password: str | None = None,
        acl: Sequence[str] = (),
        tls: Certificates | None = None,
    ) -> None:
        """``password`` guards the sentinel itself; ``acl`` are lines of further accounts on it."""
        super().__init__(binary=binary, password=password, acl=acl, tls=tls)
        self.primary, self.quorum, self.down_after_ms = primary, quorum, down_after_ms

    def start(self, *, wait: bool = True) -> None:
        """Start the sentinel with a fresh configuration (it rewrites its file while it runs)."""
        path = self.folder / "sentinel.conf"
        path.write_text("\n".join(self._config()) + "\n")
        program = [need("redis-sentinel")] if self.binary == "7.0" else [binary_path(self.binary), "--sentinel"]
        self.spawn([program[0], str(path), *program[1:]])
        if wait:
            self.wait_until(self.answers)

    def _config(self) -> list[str]:
        lines = ["bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.folder}/log", "daemonize no"]
        if self.tls:
            lines += [
                "port 0",
                f"tls-port {self.port}",
                f"tls-cert-file {self.tls.cert}",
                f"tls-key-file {self.tls.key}",
            ]
            lines += [f"tls-ca-cert-file {self.tls.ca}", "tls-auth-clients no", "tls-replication yes"]
        else:
            lines += [f"port {self.port}"]
        if self.password:
            lines += [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
        lines += self.acl
        lines += [f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} {self.quorum}"]
        lines += [f"sentinel down-after-milliseconds {SERVICE} {self.down_after_ms}"]
        lines += [f"sentinel failover-timeout {SERVICE} 5000", f"sentinel parallel-syncs {SERVICE} 2"]
        if self.primary.password:
            lines += [f"sentinel auth-pass {SERVICE} {self.primary.password}"]
        return lines

    def hurry(self) -> None:
        """Shorten two of Sentinel's own periods, so that discovery takes a second and not ten.

        Not the period of its PINGs: a replica whose INFO is older than five of them cannot be promoted.
        """
        with contextlib.suppress(redis.ResponseError):  # Redis 6.2 cannot: there it takes its time
            self.call("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200")

    def knows_all(self, replicas: int, sentinels: int) -> bool:
        """Whether this sentinel sees that many replicas and other sentinels, and a working quorum."""
        state = _pairs(self.call("SENTINEL", "MASTER", SERVICE))
        return (
            int(state["num-slaves"]) >= replicas
            and int(state["num-other-sentinels"]) >= sentinels - 1
            and state["flags"] == "master"
        )

    def settled_port(self) -> int | None:
        """Return the port of the node that this sentinel calls primary; None in the middle of a failover."""
        state = _pairs(self.call("SENTINEL", "MASTER", SERVICE))
        return None if "failover_in_progress" in state["flags"] else int(state["port"])


def _pairs(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):
        return {_text(key): _text(value) for key, value in reply.items()}
    flat = [_text(item) for item in reply]
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class SentinelGroup(RedisGroup):
    """A ``RedisGroup`` with three sentinels; ``primary`` and ``replicas`` follow a failover once told to."""

    def __init__(
        self,
        replicas: int = 2,
        *,
        sentinels: int = 3,
        binary: Binary = REDIS_7_0,
        password: str | None = None,
        acl: Sequence[str] = (),
        tls: Certificates | None = None,
        config: Sequence[str] = (),
        down_after_ms: int = 1500,
        sentinel_password: str | None = None,
        sentinel_acl: Sequence[str] = (),
    ) -> None:
        """``down_after_ms``: long where nobody is to be called down, be it that the whole machine stands still."""
        super().__init__(replicas, binary=binary, password=password, acl=acl, tls=tls, config=config)
        self.sentinels = [
            SentinelServer(
                self.primary,
                down_after_ms=down_after_ms,
                binary=binary,
                password=sentinel_password,
                acl=sentinel_acl,
                tls=tls,
            )
            for _ in range(sentinels)
        ]

    @property
    def settings(self) -> dict[str, Any]:
        """The ``[redis]`` table that reaches this group, without credentials."""
        return {"sentinels": [sentinel.address for sentinel in self.sentinels], "service": SERVICE}

    def start(self) -> None:
        """Start everything and wait until every sentinel knows every node."""
        super().start()
        self.start_sentinels()

    def start_sentinels(self) -> None:
        """Start the sentinels, which know the primary's address of now and nothing else, and wait as ``start`` does."""
        for sentinel in self.sentinels:
            sentinel.start(wait=False)
        for sentinel in self.sentinels:
            sentinel.wait_until(sentinel.answers)
            sentinel.hurry()
        self.wait_known()

    def wait_known(self) -> None:
        """Wait until every sentinel knows every node and every other sentinel."""
        for sentinel in self.sentinels:
            eventually(
                lambda at=sentinel: at.knows_all(len(self.replicas), len(self.sentinels)),  # type: ignore[misc]
                within_s=30,
                what="the sentinels know everybody",
            )

    def failover(self) -> RedisServer:
        """Order a failover as an operator would, wait for it, and return the new primary.

        Sentinels abort one whose votes or candidates do not come together in time; it is then ordered once more.
        """
        for last in (False, True):
            eventually(self._order_failover, every_s=0.2, what="a sentinel accepts SENTINEL FAILOVER")
            try:
                return self.wait_failed_over(within_s=15)
            except AssertionError:
                if last:
                    raise
        raise AssertionError

    def _order_failover(self) -> bool:
        with contextlib.suppress(redis.ResponseError):  # INPROG, NOGOODSLAVE: not yet
            return bool(self.sentinels[0].call("SENTINEL", "FAILOVER", SERVICE))
        return False

    def wait_failed_over(self, *, within_s: float = 60.0) -> RedisServer:
        """Wait until all sentinels name another primary and it acts as one; then roles here follow."""
        old = self.primary

        def promoted() -> RedisServer | None:
            ports = {at.settled_port() for at in self.sentinels if at.alive and not at.frozen}
            named = [node for node in self.nodes if {node.port} == ports and node is not old]
            return named[0] if named and named[0].info()["role"] == "master" else None

        new = eventually(promoted, within_s=within_s, what="the sentinels agree on a new primary, and it acts as one")
        assert new is not None
        self.primary, self.replicas = new, [node for node in self.nodes if node is not new]
        new.replicaof = None
        for replica in self.replicas:
            replica.replicaof = new
        return new

    def close(self) -> None:
        """End the sentinels first, then the nodes."""
        with contextlib.ExitStack() as stack:
            stack.callback(super().close)
            for sentinel in self.sentinels:
                stack.callback(sentinel.close)
