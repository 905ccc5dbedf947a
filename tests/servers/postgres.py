"""PostgreSQL in a folder of its own; as root it runs as the user postgres, since initdb refuses root.

Knows: initdb and postgres.
Must not know: tables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.process import Process, accepts, free_port, need


def postgres_program(name: str) -> str:
    """Return the newest installed PostgreSQL's program of that name."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return need(installed[-1] if installed else name)


class Postgres(Process):
    """One PostgreSQL server; user and database ``postgres``, no password on loopback."""

    def __init__(self, *, port: int | None = None) -> None:
        super().__init__("postgres")
        self.port = port or free_port()

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Make the data folder if there is none, start the server and wait until it listens."""
        initdb, postgres = postgres_program("initdb"), postgres_program("postgres")
        user = "postgres" if os.getuid() == 0 else None
        data = self.folder / "data"
        if user:
            shutil.chown(self.folder, user)
        if not data.exists():
            command = [initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
            groups: list[int] | None = [] if user else None
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=60,
                user=user,
                group=user,
                extra_groups=groups,
                cwd="/",
            )
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder), "-F", "-c", "max_connections=30"]
        self.spawn([postgres, "-D", str(data), *options], user=user)
        self.wait_until(lambda: accepts(self.port) and self._ready())

    def _ready(self) -> bool:
        command = [postgres_program("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        return subprocess.run(command, check=False, timeout=30).returncode == 0

    def close(self) -> None:
        """End the server with its children, and remove its data."""
        if self.alive:
            if self.frozen:
                self.thaw()
            self._end_at_once()
        super().close()

    def _end_at_once(self) -> None:
        assert self.popen is not None
        self.popen.send_signal(3)  # SIGQUIT: immediate shutdown; a killed postmaster would leave its children
        self.popen.wait(30)
