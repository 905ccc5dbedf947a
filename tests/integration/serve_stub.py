"""A stand-in for the gateway, so that processes can be tested without Redis: ``--build`` names its ``build``.

It answers ``/pid``, ``/slow?<file>`` once there is such a file, and ``/readyz``; the board's key says how it misbehaves
at start and stop.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from gateway.counters import Counters
from gateway.errors import OriginUnavailable
from gateway.readpath import Readiness
from gateway.settings import Settings


class Stub:
    def __init__(self, mood: str, counters: Counters) -> None:
        self.mood = mood
        self.draining = False
        self._asked = counters.counter("gateway_stub_asked_total", "Requests.", ["path"])
        self._answers = counters.counter("gateway_stub_answers_total", "Answers.", ["path"])
        self.asgi = self.answer
        if mood == "cannot tell":
            counters.gauge("gateway_stub_broken", "Broken.", lambda: {(): 1 / 0})

    async def start(self) -> None:
        if self.mood == "fails to start":
            raise OriginUnavailable("no such thing")
        if self.mood == "hangs at start":
            await asyncio.sleep(600)

    async def stop(self) -> None:
        if self.mood == "hangs at stop":
            await asyncio.sleep(600)

    def readiness(self) -> Readiness:
        return Readiness(ready=True, redis_up=True, fresh=1, last_known=0, missing=0)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self._asked.add(path)
        if path == "/slow":
            while not Path(scope["query_string"].decode()).exists():
                await asyncio.sleep(0.01)
        status = 503 if path == "/readyz" and self.draining else 200
        headers = [(b"connection", b"close")] if self.draining else []
        body = str(os.getpid()).encode()
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})
        self._answers.add(path)


def build(settings: Settings, *, counters: Counters) -> Stub:
    mood = settings.boards[0].key
    if mood == "cannot be built":
        raise RuntimeError(mood)
    return Stub(mood, counters)
