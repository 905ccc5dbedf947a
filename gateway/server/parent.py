"""Parent: the process that an operator starts, from its listeners to its exit status.

Knows: the settings, the order of things at start and stop, signals.
Must not know: what the workers answer.

The end, once SIGTERM or SIGINT has come:

1. Every worker says not ready and ends keep-alive; connections are still accepted, for ``drain_s``. A second signal
   skips the rest of this step.
2. The parent's copies of the listeners close, then the workers' own; what is in flight is finished within 3 s.
3. The workers close Redis and exit; whichever is late is killed. Exit status 0.

SIGHUP is ignored: nothing is read again while the gateway runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from gateway import __version__, logs, telemetry
from gateway.clock import Clock, SystemClock
from gateway.server.admin import AdminProtocol, Page, document, readyz
from gateway.server.group import Group
from gateway.server.listeners import CannotListen, address_of, bind
from gateway.server.order import Order
from gateway.settings import Settings
from gateway.terminal import FAILED

log = logging.getLogger(__name__)


def serve(settings: Settings, *, build: str = "gateway.app:build", clock: Clock | None = None) -> int:
    """Serve until a signal ends it; return the exit status: 0, or 1 if it could not listen or no worker could start.

    ``build`` names what makes a worker's gateway, as ``module:function``; it is called in the worker, with the
    settings and ``counters=``.
    """
    logs.configure(settings.log, process="parent")
    server = settings.server
    try:
        listeners = bind(server.host, server.port, server.workers)
        admin = bind(*server.admin_address, 1)[0] if server.admin_address is not None else []
    except CannotListen as error:
        sys.stderr.write(f"leaderboard-gateway: {error}\n")
        return FAILED
    return asyncio.run(Parent(settings, build, clock or SystemClock()).run(listeners, admin))


class Parent:
    """One run of the gateway."""

    def __init__(self, settings: Settings, build: str, clock: Clock) -> None:
        self._settings = settings
        self._build = build
        self._clock = clock
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()

    async def run(self, listeners: Sequence[list[socket.socket]], admin: Sequence[socket.socket]) -> int:
        """Start the workers, wait for a signal, stop; return the exit status."""
        self._handle_signals()
        for warning in self._settings.warnings:
            log.warning("%s", warning)
        orders = [Order(index, self._settings, self._build) for index in range(self._settings.server.workers)]
        group = Group(orders, listeners, self._clock)
        group.counters.gauge(
            "gateway_info",
            "The version that runs.",
            lambda: {(__version__,): 1},
            labels=["version"],
            over_workers="max",
        )
        admin_servers = [await self._admin(group, listener) for listener in admin]
        group.start()
        self._say_start(listeners, admin)
        ended = await self._until_the_end(group)
        for listener in (listener for one in listeners for listener in one):
            listener.close()
        clean = await group.stop()
        for server in admin_servers:
            server.close()
        log.info("stopped", extra={"clean": clean})
        return 0 if ended and clean else FAILED

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signals.put_nowait, number)
        loop.add_signal_handler(signal.SIGHUP, log.warning, "SIGHUP is ignored: restart to change a setting")

    async def _admin(self, group: Group, listener: socket.socket) -> asyncio.Server:
        async def metrics(accept: str) -> Page:
            body, content_type = telemetry.exposition(await group.snapshots(), accept)
            return Page(200, content_type, body)

        async def livez(_accept: str) -> Page:
            return document(200, {"status": "ok"})

        async def ready(_accept: str) -> Page:
            return readyz(await group.readiness(), group.size, draining=group.draining)

        pages = {"/metrics": metrics, "/livez": livez, "/readyz": ready}
        return await asyncio.get_running_loop().create_server(lambda: AdminProtocol(pages), sock=listener)

    def _say_start(self, listeners: Sequence[list[socket.socket]], admin: Sequence[socket.socket]) -> None:
        fields = {
            "version": __version__,
            "pid": os.getpid(),
            "workers": len(listeners),
            "admin": ",".join(str(address_of(listener)) for listener in admin) or "none",
            "leaderboards": len(self._settings.leaderboards),
            "redis": self._settings.redis.shape,
        }
        addresses = ", ".join(f"http://{address_of(listener)}" for listener in listeners[0])
        log.info("leaderboard-gateway listens on %s", addresses, extra=fields)

    async def _until_the_end(self, group: Group) -> bool:
        """Wait for a signal and drain; False if the workers gave up before one came."""
        signalled = asyncio.create_task(self._signals.get())
        given_up = asyncio.create_task(group.given_up())
        started = asyncio.create_task(self._say_started(group))
        await asyncio.wait({signalled, given_up}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if not signalled.done():
            signalled.cancel()
            log.critical("no worker can be started; giving up")
            return False
        drain_s = self._settings.server.drain_s
        log.info("draining", extra={"signal": signalled.result().name, "drain_s": drain_s})
        group.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._signals.get()
            log.info("a second signal: the drain is over")
        given_up.cancel()
        return True

    async def _say_started(self, group: Group) -> None:
        await group.first()
        log.info("all workers accept connections", extra={"workers": group.size})
