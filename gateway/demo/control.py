"""Between the page's worker and the demo's own process: a Unix socket with one line of JSON each way.

Knows: the message shapes.
Must not know: HTTP, how Redis is stopped.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypedDict, cast

CONTROL_VARIABLE = "LEADERBOARD_GATEWAY_DEMO"
"""The environment variable that tells a worker where the socket is."""

ANSWER_S = 20.0
"""How long an order may take: starting Redis is the slowest."""


class State(TypedDict):
    """What the demo's process says of itself in answer to every message."""

    redis: Literal["running", "stopped", "changing"]
    writer: bool
    written: int
    crowd: int


class Order(TypedDict, total=False):
    """What the page wants changed; an empty order only asks for the state."""

    redis: Literal["start", "stop"]
    writer: bool
    crowd: int


Obey = Callable[[Order], Awaitable[State]]


async def listen(path: Path, obey: Obey) -> asyncio.Server:
    """Answer orders on a Unix socket at ``path``."""

    async def answer(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            state = await obey(cast("Order", json.loads(await reader.readline())))
            writer.write(json.dumps(state).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # whoever asked is gone
        finally:
            writer.close()

    return await asyncio.start_unix_server(answer, path)


async def send(path: Path, order: Order) -> State:
    """Give one order and return the state after it; raise ``OSError`` (time-outs too) where nobody answers."""
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(json.dumps(order).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
    if not line:
        raise ConnectionResetError("the demo's process went away")
    return cast("State", json.loads(line))
