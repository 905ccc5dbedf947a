"""Group: the workers together, each replaced when it dies, all ended together.

Knows: how many there are, which of them answer, when to give up.
Must not know: signals, HTTP, what a worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from signal import Signals

from gateway.clock import Clock
from gateway.counters import Counters
from gateway.readpath import Readiness
from gateway.server.order import CANNOT_START, LEAVE_S, Order
from gateway.server.process import WorkerProcess
from gateway.telemetry import Snapshot, added_up, only_growing, snapshot

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 10.0
STEADY_S = 30.0
"""A worker that lived so long did not die of its start: the next one begins without a pause to speak of."""
FAILED_STARTS = 3
"""With no worker that answers, so many failed starts in a row end the group."""
REPORT_EVERY_S = 1.0
"""What a worker counted since its last report is lost when it is killed."""
ANSWER_S = 1.0
SILENCE_S = 30.0
"""A worker whose loop stands still for so long is killed and replaced."""

log = logging.getLogger(__name__)


class Group:
    """As many workers as there are lists of listeners."""

    def __init__(self, orders: Sequence[Order], listeners: Sequence[Sequence[socket.socket]], clock: Clock) -> None:
        self._orders = orders
        self._listeners = listeners
        self._clock = clock
        self._workers: dict[int, WorkerProcess] = {}
        self._retired: Snapshot = {}
        self._failed_starts = 0
        self._spawning = asyncio.Lock()  # a start changes the signal mask of this process for a moment
        self._stopping = asyncio.Event()
        self._unclean = False
        self._given_up = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.draining = False
        self.counters = Counters()
        self._restarts = self.counters.counter("gateway_worker_restarts_total", "Workers replaced after their end.")
        self.counters.gauge("gateway_workers", "Worker processes by state.", self._states, labels=["state"])

    def _states(self) -> dict[tuple[str, ...], float]:
        return {("configured",): len(self._orders), ("serving",): len(self.serving)}

    @property
    def size(self) -> int:
        """How many workers there should be."""
        return len(self._orders)

    @property
    def serving(self) -> list[WorkerProcess]:
        """The workers that accept connections."""
        return [worker for worker in self._workers.values() if worker.started.is_set()]

    def start(self) -> None:
        """Start the workers, and whatever replaces them."""
        self._tasks = [asyncio.create_task(self._keep(index), name=f"keep {index}") for index in range(self.size)]

    async def given_up(self) -> None:
        """Wait until no worker can be started any more."""
        await self._given_up.wait()

    async def first(self) -> None:
        """Wait until every worker has accepted connections once, or none can be started."""
        while len(self.serving) < self.size and not self._given_up.is_set() and not self._stopping.is_set():
            await self._clock.sleep(0.02)

    async def _keep(self, index: int) -> None:
        """Have worker ``index`` run until the group stops or gives up."""
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            status = await self._one_life(index)
            if self.draining or self._stopping.is_set():
                self._unclean |= status != 0
                return
            if self._hopeless(status):
                self._given_up.set()
                return
            if self._clock.monotonic() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            log.error("a worker ended and is replaced", extra={"worker": index, "ended": _how(status)})
            self._restarts.add()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _one_life(self, index: int) -> int:
        """Start a worker and wait for its end; return its exit status."""
        try:
            async with self._spawning:
                worker = await WorkerProcess.spawn(self._orders[index], self._listeners[index], self._clock)
        except OSError as error:
            log.error("no process can be started: %s", error.strerror)  # noqa: TRY400 - the reason is all there is
            self._failed_starts += 1
            return CANNOT_START
        self._workers[index] = worker
        if self.draining:
            worker.drain()
        if self._stopping.is_set():
            worker.stop()
        watch = asyncio.create_task(self._watch(worker), name=f"watch {index}")
        try:
            status = await worker.ended()
        finally:
            watch.cancel()
            del self._workers[index]
        self._retired = added_up([self._retired, only_growing(worker.metrics)])
        # It accepts connections before it has started: that alone is no start that worked.
        worked = worker.started.is_set() and status != CANNOT_START
        self._failed_starts = 0 if worked else self._failed_starts + 1
        return status

    async def _watch(self, worker: WorkerProcess) -> None:
        """Keep the worker's numbers recent, and end it if it has stopped answering."""
        while True:
            await self._clock.sleep(REPORT_EVERY_S)
            worker.count()
            silent_s = self._clock.monotonic() - worker.heard_at
            if silent_s > SILENCE_S:
                log.error("a worker does not answer and is killed", extra={"pid": worker.pid, "silent_s": silent_s})
                worker.kill()
                return

    def _hopeless(self, status: int) -> bool:
        if self.serving:
            return False
        return self._failed_starts >= FAILED_STARTS or (status == CANNOT_START and self._failed_starts >= self.size)

    async def snapshots(self) -> Snapshot:
        """Return the numbers of all workers, those that have ended included, and of the group itself."""
        workers = list(self._workers.values())
        await asyncio.gather(*(worker.report(ANSWER_S) for worker in workers))
        return added_up([self._retired, snapshot(self.counters), *(worker.metrics for worker in workers)])

    async def readiness(self) -> list[Readiness]:
        """Return what each worker that accepts connections says of itself."""
        serving = self.serving
        await asyncio.gather(*(worker.report(ANSWER_S) for worker in serving))
        return [worker.readiness for worker in serving]

    def drain(self) -> None:
        """Have every worker say that it is not ready; none is replaced from now on."""
        self.draining = True
        for worker in self._workers.values():
            worker.drain()

    async def stop(self) -> bool:
        """End every worker; return whether all ended in order, by themselves and in time."""
        self._stopping.set()
        for worker in self._workers.values():
            worker.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_S)
        for worker in self._workers.values():
            log.error("a worker did not end in time and is killed", extra={"pid": worker.pid})
            worker.kill()
        if self._tasks:
            await asyncio.wait(self._tasks)
        return not self._unclean


def _how(status: int) -> str:
    return f"status {status}" if status >= 0 else Signals(-status).name
