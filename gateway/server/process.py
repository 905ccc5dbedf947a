"""A worker process as the parent sees it: started, asked, told, and in the end gone.

Knows: how a worker is started, what it sends.
Must not know: why it is started, or what happens after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.clock import Clock
from gateway.readpath import Readiness
from gateway.server.channel import Channel
from gateway.server.order import Order
from gateway.telemetry import Snapshot

_NOT_YET = Readiness(ready=False, redis_up=False, fresh=0, last_known=0, missing=0)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerProcess:
    """One worker, from its start to its exit."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel, clock: Clock) -> None:
        self._process = process
        self._channel = channel
        self._clock = clock
        self._reported = asyncio.Event()
        self._handing: asyncio.Task[None] | None = None
        self._reader = asyncio.create_task(self._listen(), name=f"worker {process.pid}")
        self.started = asyncio.Event()
        """Set once the worker accepts connections."""
        self.metrics: Snapshot = {}
        """The latest it told."""
        self.readiness = _NOT_YET
        self.heard_at = clock.monotonic()

    @classmethod
    async def spawn(cls, order: Order, listeners: Sequence[socket.socket], clock: Clock) -> WorkerProcess:
        """Start a worker that accepts on these listeners; one start at a time (see the signal mask below).

        Raises OSError where no process can be had.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [theirs.fileno(), *(listener.fileno() for listener in listeners)]
            with _signals_kept_from_children():
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "gateway.server",
                    *map(str, passed),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=passed,
                )
        worker = cls(process, await Channel.over(ours), clock)
        # Not awaited: with thousands of boards it is more than a pipe holds, and the worker reads only once it has
        # imported what it needs, while other workers wait for their start.
        worker._handing = asyncio.create_task(worker._hand_over(order), name=f"order {process.pid}")
        return worker

    async def _hand_over(self, order: Order) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - it was asked for
        with contextlib.suppress(OSError):  # it has ended already, which its exit status tells
            pipe.write(pickle.dumps(order))
            await pipe.drain()
        pipe.close()

    async def _listen(self) -> None:
        while (message := await self._channel.receive()) is not None:
            self.heard_at = self._clock.monotonic()
            if "started" in message:
                self.started.set()
            if "metrics" in message:
                self.metrics |= message["metrics"]
            if "readiness" in message:
                self.readiness = Readiness(**message["readiness"])
                self._reported.set()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def report(self, within_s: float) -> None:
        """Ask for the numbers and wait for them; a worker that is too slow is known by what it told before."""
        self._reported.clear()
        self._channel.send({"do": "report"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._reported.wait()

    def count(self) -> None:
        """Have it tell what it has counted, which costs it next to nothing; the answer shows that it lives."""
        self._channel.send({"do": "count"})

    def drain(self) -> None:
        """Tell it to say that it is not ready, and to end keep-alive."""
        self._channel.send({"do": "drain"})

    def stop(self) -> None:
        """Tell it to finish what is in flight, and to end."""
        self._channel.send({"do": "stop"})

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Wait for its exit; return the status, negative for a signal. All that it told has been heard then."""
        status = await self._process.wait()
        await self._reader
        if self._handing is not None:
            await self._handing
        self._channel.close()
        return status


@contextmanager
def _signals_kept_from_children() -> Iterator[None]:
    """Block what the parent handles while a child starts: it inherits the mask, and a Ctrl-C that reaches the whole
    process group while the child still imports does not end it with a traceback. The child unblocks them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
