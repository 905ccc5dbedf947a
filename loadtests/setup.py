"""Everything a measurement needs, started on free loopback ports and stopped at the end.

Knows: how each server is started, and what it serves.
Must not know: what is measured.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import redis

from loadtests import nodes as redis_nodes
from loadtests.answers import Prepared, save
from loadtests.config import GatewayConfig
from loadtests.nodes import Nodes
from loadtests.programs import LOOPBACK, Programs, free_port, until
from loadtests.rows import rows

ROOT = Path(__file__).resolve().parent.parent
READY_S = 30.0
HOT = 140
"""Rows that the writer changes: the top 100 and those that come and go at its end."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server of ours that runs: where it is, and its process."""

    port: int
    process: subprocess.Popen[bytes]
    admin_port: int = 0
    config: Path | None = None
    name: str = ""

    @property
    def url(self) -> str:
        """Its base address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The gateway's address for operators."""
        return f"http://{LOOPBACK}:{self.admin_port}"


class Setup:
    """A context in which servers are started; leaving it stops them all and removes their folder."""

    def __init__(self, *, replicas: int = 2) -> None:
        self._replicas = replicas
        self._stack = ExitStack()
        self.programs = Programs()
        self._served = 0

    def __enter__(self) -> Setup:
        """Make the folder."""
        self._stack.enter_context(self.programs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._stack.close()

    @cached_property
    def nodes(self) -> Nodes:
        """The primary and its replicas, started when first asked for."""
        return redis_nodes.start_nodes(self.programs, replicas=self._replicas)

    def board(self, name: str, size: int) -> None:
        """Fill a board with synthetic rows."""
        self.nodes.fill(f"lb:{name}", rows(size))

    def gateway(self, config: GatewayConfig, *, nodes: Nodes | None = None, ready: bool = True) -> Served:
        """Start a gateway and wait until it says that it is ready (or only listens)."""
        port, admin_port = free_port(), free_port()
        path = self.programs.folder / f"gateway-{port}.toml"
        path.write_text(config.text(nodes or self.nodes, port, admin_port))
        return self.gateway_from(path, port, admin_port, ready=ready)

    def gateway_from(self, config: Path, port: int, admin_port: int, *, ready: bool = True) -> Served:
        """Start a gateway with a file that names these ports."""
        command = (sys.executable, "-m", "gateway", "serve", "--config", config)
        name = f"gateway-{port}"
        process = self.programs.start(name, *command, port=port)
        served = Served(port, process, admin_port, config, name)
        if ready:
            self._await_ready(served)
        return served

    def _await_ready(self, served: Served) -> None:
        try:
            until(lambda: status_of(served.url, "/readyz") == 200, f"{served.name} ready", within_s=READY_S)
        except TimeoutError as error:
            said = self.programs.log(served.name).read_text(errors="replace").splitlines()[-5:]
            raise RuntimeError(f"{error}; it said: {' / '.join(said) or 'nothing'}") from None

    def baseline(self, module: str, *options: str | Path) -> Served:
        """Start a module of ``loadtests.baselines``."""
        port = free_port()
        self._served += 1
        name = f"{module}-{self._served}"
        command = (sys.executable, "-m", f"loadtests.baselines.{module}", "--port", str(port), *options)
        process = self.programs.start(name, *command, port=port, environ={"PYTHONPATH": str(ROOT)})
        return Served(port, process, name=name)

    def constant(self, *answers: tuple[str, Prepared]) -> Served:
        """Start the constant endpoint with answers by the end of the path."""
        self._served += 1
        path = self.programs.folder / f"answers-{self._served}.json"
        save(path, dict(answers))
        return self.baseline("constant", "--answers", path)

    def writer(self, board: str, *, per_second: float = 40.0) -> None:
        """Change scores in and around a board's top from now on, so that its snapshots are not all the same."""
        stop = threading.Event()
        thread = threading.Thread(target=_write, args=(self.nodes, f"lb:{board}", 1 / per_second, stop))
        thread.start()
        self._stack.callback(_end, stop, thread)


def _write(nodes: Nodes, key: str, pause_s: float, stop: threading.Event) -> None:
    random = Random(1)
    client = nodes.primary.client(timeout_s=1)
    hot: Any = client.zrevrange(key, 0, HOT - 1)
    while not stop.wait(pause_s):
        try:
            client.zincrby(key, random.randint(-1_000_000, 1_000_000), random.choice(hot))
        except redis.RedisError:  # frozen, gone or no longer the primary, all of it on purpose
            with suppress(redis.RedisError):
                client.close()
                client = nodes.current_primary().client(timeout_s=1)
    client.close()


def _end(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    thread.join()


def prepared(url: str, target: str, headers: Sequence[tuple[str, str]] = ()) -> Prepared:
    """Return what a server answers now, as the constant endpoint can send it (uvicorn adds ``Date`` itself)."""
    host, port = url.removeprefix("http://").split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
        connection.request("GET", target, headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read()
    lines = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.getheaders()
        if name.lower() not in {"date", "connection"}
    ]
    return Prepared(answer.status, lines, body)


def status_of(url: str, target: str) -> int:
    """Return the status of a GET; 0 if nobody answers."""
    try:
        return prepared(url, target).status
    except (OSError, http.client.HTTPException):
        return 0
