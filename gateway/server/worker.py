"""Worker: the process that answers, from its first line to its exit.

Knows: how a gateway is built, started, drained and stopped; the parent's messages.
Must not know: the other workers.

``python -m gateway.server CONTROL LISTENER…`` is for the parent: it passes descriptors by number and the settings
on standard input. Signals are the parent's affair; a worker ignores them, and ends when the parent says so or is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import uvloop

from gateway import logs, telemetry
from gateway.clock import Clock, SystemClock
from gateway.counters import Counters
from gateway.errors import GatewayError
from gateway.http.ids import IdsFilter
from gateway.http.protocol import GatewayProtocol
from gateway.readpath import Readiness
from gateway.server.channel import Channel, Message
from gateway.server.order import CANNOT_START, FINISH_S, STOP_S, Order
from gateway.server.serving import Serving

GC_THRESHOLD = (10_000, 10, 10)
"""An answer leaves no cycle behind; at the default of 700 a busy worker would look for one a hundred times a second."""

log = logging.getLogger(__name__)


class Built(Protocol):
    """What a worker needs of the gateway."""

    asgi: Any
    draining: bool

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def readiness(self) -> Readiness: ...


def built(order: Order, counters: Counters) -> Built:
    """Build the gateway that the order names."""
    module, _, function = order.build.partition(":")
    gateway: Built = getattr(import_module(module), function)(order.settings, counters=counters)
    return gateway


class Worker:
    """One gateway, served until the parent ends it."""

    def __init__(self, order: Order, channel: Channel, clock: Clock) -> None:
        self._order = order
        self._channel = channel
        self._clock = clock
        self._counters = Counters()
        self._gateway = built(order, self._counters)
        self._serving = Serving(self._gateway.asgi, GatewayProtocol, clock)
        self._declare()

    def _declare(self) -> None:
        own = (str(self._order.index),)

        def gauge(name: str, text: str, read: Callable[[], float]) -> None:
            self._counters.gauge(name, text, lambda: {own: read()}, labels=["worker"])

        gauge("gateway_connections", "Open client connections.", lambda: self._serving.connections)
        gauge("gateway_worker_resident_bytes", "Memory of each worker.", resident_bytes)
        gauge("gateway_worker_open_files", "Open descriptors of each worker.", open_files)
        gauge("gateway_worker_tasks", "asyncio tasks of each worker.", lambda: len(asyncio.all_tasks()))
        gauge("gateway_worker_cpu_seconds", "Processor time of each worker since its start.", cpu_seconds)

    async def run(self, listeners: Sequence[socket.socket]) -> int:
        """Serve; return the exit status. It is live before it has reached anything: health is told, reads may wait."""
        gc.collect()
        gc.freeze()  # what exists now stays: the collector need not walk it while requests wait
        gc.set_threshold(*GC_THRESHOLD)
        starting = asyncio.create_task(self._gateway.start(), name="start")
        orders = asyncio.create_task(self._obey(), name="orders")
        await self._serving.start(listeners)
        self._channel.send({"started": os.getpid()})
        await asyncio.wait({starting, orders}, return_when=asyncio.FIRST_COMPLETED)
        if not _failed(starting):
            await orders
        return await self._end(starting, orders)

    async def _end(self, starting: asyncio.Task[None], orders: asyncio.Task[None]) -> int:
        failed = _failed(starting)
        if failed:
            _say_why(starting.exception())
        cut = await self._serving.finish(0 if failed else FINISH_S)
        if cut:
            log.warning("requests were cut", extra={"requests": cut, "after_s": FINISH_S})
        self._channel.send(self._report())
        try:
            async with asyncio.timeout(STOP_S):
                await _ended(starting, orders)  # a start that goes on beside the stop would open what that closes
                await self._gateway.stop()
        except TimeoutError:
            log.warning("the gateway did not close its connections in time", extra={"after_s": STOP_S})
        self._channel.close()
        return CANNOT_START if failed else 0

    async def _obey(self) -> None:
        """Do what the parent says until it says stop, or is gone."""
        while True:
            message = await self._channel.receive()
            if message is None:
                log.error("the parent process is gone; stopping")
                return
            match message["do"]:
                case "count":
                    self._channel.send({"metrics": telemetry.counted(self._counters)})
                case "report":
                    self._channel.send(self._report())
                case "drain":
                    self._gateway.draining = True
                case "stop":
                    return

    def _report(self) -> Message:
        try:
            return {"metrics": telemetry.snapshot(self._counters), "readiness": self._gateway.readiness()._asdict()}
        except Exception:  # a number that cannot be told is no reason to stop answering
            log.exception("a report failed")
            return {"metrics": telemetry.counted(self._counters)}


def _say_why(error: BaseException | None) -> None:
    """Log why there is no start: one line for what an operator can mend, with a trace for what only we can."""
    expected = isinstance(error, GatewayError | OSError)
    log.critical("the gateway cannot start: %s", error, exc_info=None if expected else error)


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


def resident_bytes() -> float:
    """Return how much memory this process holds, as the kernel counts it (proc(5), statm)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux: the most it ever held
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()


def open_files() -> float:
    """Return how many descriptors this process has open."""
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return 0


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    times = os.times()
    return times.user + times.system


def raise_open_files() -> None:
    """Let this process open as many descriptors as it may: 1,024, a usual soft limit, is 1,000 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(order: Order, control: socket.socket, listeners: Sequence[socket.socket]) -> int:
    channel = await Channel.over(control)
    try:
        worker = Worker(order, channel, SystemClock())
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent has to learn that no try will help
        _say_why(error)
        return CANNOT_START
    return await worker.run(listeners)


def main(arguments: Sequence[str]) -> int:
    """Be a worker; return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    order: Order = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the parent that started this process
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    logs.configure(order.settings.log, process=f"worker-{order.index}")
    for handler in logging.getLogger().handlers:
        handler.addFilter(IdsFilter())  # on the handler: a logger's own filter does not see its children's records
    raise_open_files()
    control, *listeners = (socket.socket(fileno=int(number)) for number in arguments)
    return uvloop.run(_run(order, control, listeners))
