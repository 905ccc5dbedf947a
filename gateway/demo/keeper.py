"""The keeper: a small process that tidies up after a demo that was killed hard.

Knows: process ids that it is told on stdin, one folder.
Must not know: what the processes are.

Runs as a script of its own (``python keeper.py FOLDER``). Lines ``+PID`` and ``-PID`` say which children live; the
end of the input says that the demo is gone, however it went. Then what still lives is stopped and the folder removed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

STOP_S = 6.0
"""How long a child may take to stop by itself: the gateway finishes what is in flight within 3 s."""


class Child:
    """One process, held by a descriptor where the system has them, so that a reused id never names a stranger."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        with suppress(ProcessLookupError):
            if self._descriptor is None:
                os.kill(self._pid, number)
            else:
                signal.pidfd_send_signal(self._descriptor, number)

    def ended_within(self, seconds: float) -> bool:
        """Wait for the end, at most that long; False where the system cannot tell."""
        return self._descriptor is not None and bool(select.select([self._descriptor], [], [], seconds)[0])


def follow(lines: Iterable[str]) -> list[Child]:
    """Read what the demo says until it says no more; return the children it left."""
    children: dict[int, Child] = {}
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            with suppress(ProcessLookupError):
                children[pid] = Child(pid)
        else:
            children.pop(pid, None)
    return list(children.values())


def end(children: list[Child]) -> None:
    """Ask every child to stop, and kill those that do not."""
    for child in children:
        child.send(signal.SIGTERM)
    for child in children:
        if not child.ended_within(STOP_S):
            child.send(signal.SIGKILL)
            child.ended_within(1.0)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end(follow(sys.stdin))
    shutil.rmtree(sys.argv[1], ignore_errors=True)
