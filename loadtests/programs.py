"""Programs under measurement: started in a temporary folder, awaited, and stopped whatever happens.

Knows: processes, loopback ports.
Must not know: which programs they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

LOOPBACK = "127.0.0.1"
START_S = 30.0
STOP_S = 15.0


class Missing(RuntimeError):
    """A program, or a part of the gateway, that a measurement needs is not there; the text says which."""


def program(name: str) -> str:
    """Return a program's path; Debian keeps servers in ``/usr/sbin``, which is not on everybody's PATH."""
    found = shutil.which(name, path=os.defpath + ":/usr/sbin:/sbin:" + os.environ.get("PATH", ""))
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def until(holds: Callable[[], bool], what: str, *, within_s: float = START_S) -> None:
    """Wait until something holds; raise ``TimeoutError`` naming it if it does not in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(0.05)


def listening(port: int) -> bool:
    """Say whether somebody accepts connections on this loopback port."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


class Programs:
    """A temporary folder and the processes that run in it; leaving the context ends both."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="leaderboard-gateway-load-"))
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Programs:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the last first, and remove the folder."""
        for process in reversed(self._running.copy()):
            self.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(
        self, name: str, *command: str | Path, port: int | None = None, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program and wait until it listens on ``port``, if given; its output goes to ``<name>.log``.

        Raises ``RuntimeError`` with the last lines of its output if it ends before that.
        """
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environ or {})},
                start_new_session=True,  # Ctrl-C is for us; we stop them in order
            )
        self._running.append(process)
        if port is not None:
            until(lambda: self._up(name, process, port), f"{name} listening")
        return process

    def _up(self, name: str, process: subprocess.Popen[bytes], port: int) -> bool:
        if process.poll() is not None:
            lines = self.log(name).read_text(errors="replace").splitlines()[-8:]
            raise RuntimeError(f"{name} ended at once with status {process.returncode}: " + "\n".join(lines))
        return listening(port)

    def log(self, name: str) -> Path:
        """Return the file that holds what a program printed."""
        return self.folder / f"{name}.log"

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a process, frozen ones too; kill it if it does not end in time."""
        if process in self._running:
            self._running.remove(process)
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def frozen(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """Keep processes stopped (SIGSTOP) inside the block: they hold their connections and answer nothing."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)


def end_on_sigterm() -> None:
    """Make SIGTERM leave through every ``with`` block, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
