"""nginx and Varnish with a configuration that the test gives.

Knows: how to run both in the foreground in a folder of their own.
Must not know: what they are put in front of.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from tests.servers.process import Process, accepts, free_port, need


class Nginx(Process):
    """nginx with this whole configuration file, which must listen on ``127.0.0.1:<port>``.

    Relative paths in it are inside ``folder``, which exists before the start (``prepare`` files there).
    """

    def __init__(self, conf: str, *, port: int) -> None:
        super().__init__("nginx")
        self.conf, self.port = conf, port
        self.folder.chmod(0o755)

    def start(self) -> None:
        """Start nginx and wait until it listens."""
        nginx = need("nginx")
        path = self.folder / "nginx.conf"
        path.write_text(self.conf)
        (self.folder / "logs").mkdir(exist_ok=True)
        self.spawn([nginx, "-p", str(self.folder), "-c", str(path), "-e", str(self.stderr), "-g", self._globals()])
        self.wait_until(lambda: accepts(self.port))

    def _globals(self) -> str:
        wanted = {"daemon": "off", "pid": str(self.folder / "nginx.pid")}
        if os.getuid() == 0:
            wanted["user"] = "root"  # its workers must reach the folder
        return " ".join(f"{key} {value};" for key, value in wanted.items() if not self._has(key))

    def _has(self, directive: str) -> bool:
        return re.search(rf"^\s*{directive}\s", self.conf, re.MULTILINE) is not None

    def check(self) -> str:
        """Return what ``nginx -t`` says of the configuration; fail if it refuses it."""
        path = self.folder / "checked.conf"
        path.write_text(self.conf)
        command = [need("nginx"), "-t", "-p", str(self.folder), "-c", str(path), "-e", str(self.stderr)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr


class Varnish(Process):
    """varnishd with this VCL and these further options, on a port of its own."""

    def __init__(self, vcl: str, *, port: int | None = None, options: Sequence[str] = ()) -> None:
        super().__init__("varnish")
        self.vcl, self.port, self.options = vcl, port or free_port(), options

    def start(self) -> None:
        """Compile the VCL, start varnishd and wait until it listens."""
        varnishd = need("varnishd")
        path = self.folder / "test.vcl"
        path.write_text(self.vcl)
        listen = ["-a", f"127.0.0.1:{self.port}", "-T", "none", "-n", str(self.folder / "state")]
        small = ["-s", "default,32m", "-p", "thread_pools=1", "-p", "thread_pool_min=10"]
        self.spawn([varnishd, "-j", "none", "-F", "-f", str(path), *listen, *small, *self.options])
        self.wait_until(lambda: accepts(self.port))

    def close(self) -> None:
        """End varnishd in order, since its child process outlives a killed parent by a moment."""
        if self.alive:
            self.terminate()
        super().close()
