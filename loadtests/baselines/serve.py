"""Run a baseline exactly as a worker of the gateway is run: same loop, same server settings, same protocol class.

Knows: the gateway's serving, and the class that reads HTTP for it.
Must not know: what the application answers.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from typing import Any

import uvloop

from gateway.clock import SystemClock
from gateway.http.protocol import GatewayProtocol
from gateway.server.serving import Serving


def serve(app: Any, port: int) -> None:
    """Serve ``app`` on loopback until SIGTERM."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(2048)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(app, listener))


async def _serve(app: Any, listener: socket.socket) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    serving = Serving(app, GatewayProtocol, SystemClock())
    await serving.start([listener])
    gc.collect()
    gc.freeze()  # as a worker does
    await over.wait()
    await serving.finish(1.0)
