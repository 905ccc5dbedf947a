"""Run a baseline under the very server settings of a gateway worker.

Knows: uvicorn, and the gateway's protocol class.
Must not know: what the application answers.
"""

from __future__ import annotations

import socket
from importlib import import_module
from typing import Any

import uvicorn


def protocol_class() -> Any:
    """Return the HTTP protocol class of the gateway's worker."""
    return import_module("gateway.http.protocol").GatewayProtocol


def serve(app: Any, port: int) -> None:
    """Serve ``app`` on loopback until SIGTERM."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="warning",
        timeout_keep_alive=75,
    )
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    uvicorn.Server(config).run(sockets=[listener])
