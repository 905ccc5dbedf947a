"""Channel: messages between the parent and one worker, a JSON object a line over a socket pair.

Knows: framing.
Must not know: what the messages mean.

Its end is a message too: each side learns from it at once that the other is gone, however it died.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

_LIMIT_BYTES = 64 * 1024 * 1024
"""Of one message; a snapshot of every metric is some tens of KiB."""


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """Take over one socket of a pair."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_LIMIT_BYTES))

    def send(self, message: Message) -> None:
        """Send a message; nothing happens if the other side is gone, which ``receive`` tells."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def receive(self) -> Message | None:
        """Return the next message; None once the other side is gone."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (OSError, asyncio.IncompleteReadError):
            return None
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        """Close this end, after what was sent has gone out."""
        self._writer.close()
