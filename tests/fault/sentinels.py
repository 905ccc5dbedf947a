"""A Sentinel that says what a test wants: that it is cut off, mute, or sees another primary than the rest.

Knows: RESP2, the four commands that a client of Sentinel needs.
Must not know: how the gateway decides whom to believe.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Self

import hiredis

from tests.servers import RedisServer, free_port


def reply(value: object) -> bytes:
    """Return a RESP2 reply: text and numbers as bulk strings, lists as arrays, None as the nil array."""
    if value is None:
        return b"*-1\r\n"
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(reply, value))
    if isinstance(value, int):
        return b":%d\r\n" % value
    text = str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)


class FakeSentinel:
    """One Sentinel of the service ``leaderboards``. ``mute``: it answers no question, and still publishes."""

    def __init__(self, primary: RedisServer, replicas: Sequence[RedisServer], *, epoch: int = 1) -> None:
        self.port = free_port()
        self.mute = False
        self.unanswered = 0
        """Questions since it is mute. Who asks has got or given up all answers to the round of questions before."""
        self._listeners: set[asyncio.StreamWriter] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.sees(primary, replicas, epoch=epoch)

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    def sees(self, primary: RedisServer, replicas: Sequence[RedisServer], *, epoch: int) -> None:
        """Change what it says."""
        self.primary, self.replicas, self.epoch = primary, list(replicas), epoch

    def publish_switch(self, old: RedisServer, new: RedisServer) -> None:
        """Publish ``+switch-master``."""
        self.publish(f"leaderboards 127.0.0.1 {old.port} 127.0.0.1 {new.port}")

    @property
    def listeners(self) -> int:
        """How many connections have subscribed."""
        return len(self._listeners)

    def publish(self, message: str) -> None:
        """Publish any message on the channel of switches."""
        for writer in self._listeners:
            writer.write(reply(["message", "+switch-master", message]))

    def _answer(self, words: list[str], *, subscribed: bool) -> bytes | None:
        question = " ".join(words[:2]).upper()
        if words[0].upper() == "SUBSCRIBE":
            return b"".join(reply(["subscribe", channel, n]) for n, channel in enumerate(words[1:], 1))
        if words[0].upper() != "SENTINEL":
            return reply(["pong", ""]) if subscribed else b"+OK\r\n"
        if self.mute:
            self.unanswered += 1
            return None
        if question == "SENTINEL GET-MASTER-ADDR-BY-NAME":
            return reply(["127.0.0.1", self.primary.port])
        if question == "SENTINEL MASTER":
            return reply([*self._state(self.primary, "master"), "config-epoch", self.epoch])
        return reply([self._state(node, "slave") for node in self.replicas])

    @staticmethod
    def _state(node: RedisServer, role: str) -> list[Any]:
        return ["ip", "127.0.0.1", "port", str(node.port), "flags", role, "role-reported", role]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader(encoding="utf-8")
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                parser.feed(data)
                while (words := parser.gets()) is not False:
                    if words[0].upper() == "SUBSCRIBE":
                        self._listeners.add(writer)
                    answer = self._answer(words, subscribed=writer in self._listeners)
                    if answer is not None:
                        writer.write(answer)
        self._listeners.discard(writer)
        self._writers.discard(writer)
        writer.close()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Stop listening and drop everyone."""
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
