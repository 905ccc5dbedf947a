"""Discovery: what topologies share that ask servers where the nodes are.

Knows: redis-py clients that are kept, names to resolve, a refresh that runs behind everything.
Must not know: Sentinel's or Cluster's answers, reads.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.clock import Clock
from gateway.replicas.login import Address

log = logging.getLogger(__name__)

QUESTION_TIMEOUT_S = 0.5
"""Connecting, and then each answer: discovery is off the request path, but one dead server must not delay it long."""

# Nothing is said of ourselves: an account must not need CLIENT SETINFO only to ask, and a refusal would fill its log.
_PARAMETERS = inspect.signature(Redis.__init__).parameters
_UNNAMED: dict[str, Any] = (
    {"driver_info": None} if "driver_info" in _PARAMETERS else {"lib_name": None, "lib_version": None}
)

Resolve: TypeAlias = Callable[[Address], Awaitable[Sequence[Address]]]


async def resolve(address: Address) -> Sequence[Address]:
    """Return every address that a name stands for now, in the resolver's order; none if it cannot be resolved."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # UnicodeError: a name that no name server can be asked for, as ``a..example``
        return ()
    return tuple(dict.fromkeys(Address(str(name[0]), int(name[1])) for *_, name in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who asks, and whether over TLS; the secret stays out of ``repr``."""

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    encrypted: bool = False
    ca_file: Path | None = None


class Clients:
    """One redis-py client an address, kept until told otherwise: asking again opens no new connection."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._kept: dict[Address, Redis] = {}

    def at(self, address: Address) -> Redis:
        """Return the client for this address, made on first use."""
        client = self._kept.get(address)
        if client is None:
            client = self._kept[address] = self._open(address)
        return client

    def _open(self, address: Address) -> Redis:
        account = self._account
        tls: dict[str, Any] = {}
        if account.encrypted:
            tls = {"ssl": True, "ssl_ca_certs": str(account.ca_file) if account.ca_file else None}
        return Redis(
            host=address.host,
            port=address.port,
            username=account.username,
            password=account.password,
            socket_timeout=QUESTION_TIMEOUT_S,
            socket_connect_timeout=QUESTION_TIMEOUT_S,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **tls,
            **_UNNAMED,
        )

    async def retain(self, addresses: Iterable[Address]) -> None:
        """Close every client but those of these addresses."""
        kept = set(addresses)
        for address in [address for address in self._kept if address not in kept]:
            await self._kept.pop(address).aclose()

    async def close(self) -> None:
        """Close every client."""
        await self.retain(())


class Refresher:
    """Run one refresh again and again: every so often, or soon after somebody asked for it.

    At most one runs at a time, and ``pause_s`` lies between the end of one and the start of the next, however many ask.
    A wake while one runs means another: the report may be newer than what is being read. ``refresh`` says whether
    it succeeded; after a failure the next comes sooner. It never ends by itself.
    """

    def __init__(
        self,
        refresh: Callable[[], Awaitable[bool]],
        clock: Clock,
        *,
        every_s: float,
        retry_s: float = 0.5,
        pause_s: float = 0.25,
    ) -> None:
        self._refresh, self._clock = refresh, clock
        self._every_s, self._retry_s, self._pause_s = every_s, retry_s, pause_s
        self._woken, self._tried = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, patience_s: float) -> None:
        """Begin, and wait for the first attempt to end, but no longer than ``patience_s``."""
        self._task = asyncio.create_task(self._run(), name="topology refresh")
        await self._either(self._tried, patience_s)

    def wake(self) -> None:
        """Ask for a refresh soon; cheap, and may be called in floods."""
        self._woken.set()

    async def stop(self) -> None:
        """End, in the middle of a refresh if need be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            succeeded = await self._attempt()
            self._tried.set()
            await self._clock.sleep(self._pause_s)
            await self._either(self._woken, (self._every_s if succeeded else self._retry_s) - self._pause_s)

    async def _attempt(self) -> bool:
        try:
            return await self._refresh()
        except Exception:  # a fault of ours in here must not end discovery for the life of the process
            log.exception("learning where the nodes are failed")
            return False

    async def _either(self, event: asyncio.Event, seconds: float) -> None:
        if event.is_set():
            return
        waits = [asyncio.create_task(event.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
