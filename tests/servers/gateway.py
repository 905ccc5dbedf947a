"""The gateway as its users run it: ``python -m gateway serve --config FILE`` in a process of its own.

Knows: the command, the settings file, the health routes.
Must not know: anything inside the gateway.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.servers.process import Process, eventually, free_port

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return what a gateway's processes are started with: no settings but the file's, and warnings that count.

    They run far from UTC, so that local time taken for UTC shows on every host. A deprecated call made by a module of
    ours is an error there; a library's own calls are its affair. The variable takes whole names only, so it names every
    module.
    """
    ours = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in ("gateway", "cdn")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    deprecated = ",".join(f"error::DeprecationWarning:{module}" for module in modules)
    return ours | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": deprecated, "TZ": "<+14>-14"}


def toml(settings: Mapping[str, Any]) -> str:
    """Write a settings dict (tables, lists of tables, plain values) as TOML."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in settings.items() if not _is_table(value)]
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += [f"[{_key(key)}]", *_body(value)]
        elif _is_table(value):
            for item in value:
                lines += [f"[[{_key(key)}]]", *_body(item)]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _body(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _value(key)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_body(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


class Gateway(Process):
    """A running gateway: ``url`` and ``admin_url`` reach it, ``stop`` ends it and checks how it ended."""

    options: Sequence[str] = ()
    """Further options of ``serve``."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        wait_for: str | None = "/readyz",
        env: Mapping[str, str] | None = None,
        drain_s: float = 0,
    ) -> None:
        """``settings`` is the settings file as a dict; ports that it does not name are free ones.

        ``wait_for``: the path that must answer 200 before the start counts as done; None: nothing is waited for.
        """
        super().__init__("gateway")
        self.settings = copy.deepcopy(dict(settings))
        server = self.settings.setdefault("server", {})
        server.setdefault("host", "127.0.0.1")
        server.setdefault("port", free_port())
        server.setdefault("admin", f"127.0.0.1:{free_port()}")
        server.setdefault("drain_s", drain_s)
        self.env, self.wait_for = dict(env or {}), wait_for

    @property
    def port(self) -> int:
        """The public port."""
        return int(self.settings["server"]["port"])

    @property
    def url(self) -> str:
        """The public address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """The operators' address."""
        return f"http://{self.settings['server']['admin']}"

    @property
    def config(self) -> Path:
        """The settings file, written at the start."""
        return self.folder / "gateway.toml"

    def start(self) -> None:
        """Write the settings, start the gateway and wait for its health route."""
        self.config.write_text(toml(self.settings))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(self.config), *self.options]
        self.spawn(command, cwd=ROOT, env=environment() | self.env)
        if self.wait_for is not None:
            self.wait_until(lambda: self.get(self.wait_for or "/")[0] == 200)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        """GET one path: status, headers (lower-case names), body. Connection errors are ``OSError``."""
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, {key.lower(): value for key, value in reply.headers.items()}, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {key.lower(): value for key, value in error.headers.items()}, error.read()

    def json(self, path: str) -> Any:
        """GET one path, which must answer 200, and return its JSON."""
        status, _, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels, from the operators' address."""
        total = 0.0
        for line in self.metrics().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
                total += float(value)
        return total

    def metrics(self) -> str:
        """Return all metrics as text, from the operators' address."""
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=30) as reply:
            return str(reply.read().decode())

    def wait_ready(self, *, within_s: float = 30.0) -> None:
        """Wait until the gateway says that it is ready."""
        eventually(lambda: self.get("/readyz")[0] == 200, within_s=within_s, what="the gateway is ready")

    def wait_all_ready(self, *, status: str = "ready", within_s: float = 30.0) -> None:
        """Wait until every worker says that it is ready, each for itself: a request to the public port asks one.

        ``status``: what they say together; ``degraded`` while Redis is away.
        """
        workers = self.settings["server"].get("workers", 1)

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"{self.admin_url}/readyz", timeout=30) as reply:
                    body = json.load(reply)
            except urllib.error.HTTPError as error:
                error.close()
                return False
            return bool(body["status"] == status and body["workers"]["ready"] == workers)

        eventually(ready, within_s=within_s, what="every worker is ready")

    def stop(self, *, status: int | None = 0, within_s: float = 30.0) -> str:
        """Send SIGTERM, check the exit status (unless None) and that no traceback was written; return stderr."""
        found = self.terminate(within_s=within_s)
        errors = self.stderr.read_text(errors="replace")
        if status is not None:
            assert found == status, f"the gateway ended with {found}\n{self.output()}"
        assert "Traceback" not in errors, errors
        assert "never retrieved" not in errors, errors
        assert "unclosed" not in errors, errors
        return errors

    def close(self) -> None:
        """End the gateway in order, so that no worker outlives its parent, and remove its folder."""
        try:
            if self.alive:
                self.terminate()
        finally:
            super().close()
