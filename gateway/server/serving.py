"""Serving: uvicorn's server with a start and an end of our own.

Knows: uvicorn, connections, requests in flight.
Must not know: what is answered, signals, processes.

uvicorn alone closes its listeners at once and ends by raising the signal again. Here the listeners close when
``finish`` is called, and whoever called goes on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.clock import Clock
from gateway.server.listeners import BACKLOG

KEEP_ALIVE_S = 75
"""Longer than any front keeps an idle connection (the shipped nginx: 60 s): the front must be the one to close."""

_STEP_S = 0.02
_DATE_S = 1.0


class Serving:
    """An ASGI application on sockets that somebody else bound."""

    def __init__(self, app: Any, protocol: type[asyncio.Protocol], clock: Clock) -> None:
        config = uvicorn.Config(
            app,
            http=protocol,
            loop="none",  # the caller's loop runs already
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # the peer is the client that is logged; anyone can write X-Forwarded-For
            server_header=False,
            workers=1,  # else uvicorn looks into the environment
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            # limit_concurrency stays unset: it counts idle connections too. Our own bounds are on waiting reads.
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._clock = clock
        self._dates: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections on these sockets."""
        await self._server.on_tick(0)  # before the first answer, which carries a date as well
        await self._server.startup(sockets=list(listeners))
        self._dates = asyncio.create_task(self._keep_dates(), name="dates")

    async def _keep_dates(self) -> None:
        while True:
            await self._clock.sleep(_DATE_S)
            await self._server.on_tick(0)

    async def finish(self, limit_s: float) -> int:
        """Accept no more, let what is in flight be answered, close all; return how many requests were cut.

        Idle connections and half-sent requests are closed at once, what is still open after ``limit_s`` then.
        """
        for listener in self._server.servers:
            listener.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        deadline = self._clock.monotonic() + limit_s
        while (state.connections or state.tasks) and self._clock.monotonic() < deadline:
            await self._clock.sleep(_STEP_S)
        cut = list(state.tasks)
        if cut:
            # uvicorn would log each with a trace; who asked for the cut says how many there were.
            logging.getLogger("uvicorn.error").disabled = True
        for task in cut:
            task.cancel()
        for connection in list(state.connections):
            cast("HttpToolsProtocol", connection).transport.abort()
        if cut:
            await asyncio.wait(cut, timeout=_STEP_S)
        if self._dates is not None:
            self._dates.cancel()
        return len(cut)
