"""Sentinel topology: one shard, whose primary and replicas the Sentinels name.

Knows: the SENTINEL commands, flags, configuration epochs, +switch-master.
Must not know: reads, lag, who is chosen.

Every Sentinel is asked, every second, over kept connections; the highest configuration epoch is believed. One alone
is not: a Sentinel cut off together with the old primary goes on naming it. What they publish only makes things quicker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from gateway.clock import Clock
from gateway.replicas.discovery import QUESTION_TIMEOUT_S, Account, Clients, Refresher
from gateway.replicas.login import Address, Login
from gateway.replicas.topology import Redirect, Role, Shard

if TYPE_CHECKING:
    from gateway.replicas.node import Node, Nodes

log = logging.getLogger(__name__)

POLL_S = 1.0
LOWER_EPOCH_AFTER_S = 30.0
"""How long Sentinels with an older configuration are not believed after a newer one was seen. An operator who resets
all Sentinels starts their epochs anew, so it cannot be for ever."""
_SILENCE_S = 10.0
_RELISTEN_S = 1.0
_UNUSABLE = ("s_down", "o_down", "disconnected")


class View(NamedTuple):
    """What one Sentinel says: of which configuration, who is primary, and which replicas may be read."""

    epoch: int
    primary: Address
    replicas: tuple[Address, ...]


def view_of(address: tuple[Any, Any], primary: Mapping[str, Any], replicas: Iterable[Mapping[str, Any]]) -> View:
    """Return a view from redis-py's forms of SENTINEL GET-MASTER-ADDR-BY-NAME, MASTER and SLAVES.

    The address comes from the first: a Sentinel in the middle of a failover has the new epoch in the second
    already, with the old primary's address beside it until the last replica follows.
    Replicas that the Sentinel cannot reach are left out, unless it can reach none: then its own network may be
    what is broken, and the gateway finds out for itself. A link to the primary that is down leaves nobody out:
    it is down for every replica while a primary is dead, and reads go on. A node that still says it is a primary
    is no replica.
    """
    followers = [state for state in replicas if state.get("role-reported", "slave") == "slave"]
    usable = [state for state in followers if not _flags(state).intersection(_UNUSABLE)]
    listed = {_address(state): None for state in usable or followers}
    at = Address(_text(address[0]), int(address[1]))
    listed.pop(at, None)
    return View(int(primary.get("config-epoch", 0)), at, tuple(listed))


def best_of(views: Iterable[View | None]) -> View | None:
    """Return the view of the newest configuration; among equals the one that lists most replicas."""
    found = [view for view in views if view is not None]
    return max(found, key=lambda view: (view.epoch, len(view.replicas)), default=None)


def _address(state: Mapping[str, Any]) -> Address:
    return Address(str(state["ip"]), int(state["port"]))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _flags(state: Mapping[str, Any]) -> set[str]:
    flags = state.get("flags", "")
    return set(flags.split(",")) if isinstance(flags, str) else set(flags)


class SentinelTopology:
    """Follow what the Sentinels say about one service."""

    def __init__(
        self,
        nodes: Nodes,
        sentinels: Sequence[Address],
        service: str,
        *,
        login: Login,
        account: Account,
        clock: Clock,
    ) -> None:
        """``login`` is for the nodes, ``account`` for the Sentinels themselves."""
        self._nodes, self._sentinels, self._service = nodes, tuple(sentinels), service
        self._login, self._clients, self._clock = login, Clients(account), clock
        self._shard = Shard(None, (), expects_replicas=False, answered_at=clock.monotonic())
        self._epoch, self._epoch_heard_at = -1, clock.monotonic()
        self._known = False
        self._reachable: bool | None = None
        self._refresher = Refresher(self._refresh, clock, every_s=POLL_S)
        self._listeners: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Ask once, and go on asking and listening behind."""
        await self._refresher.start(patience_s=2 * QUESTION_TIMEOUT_S)
        self._listeners = [asyncio.create_task(self._listen(address)) for address in self._sentinels]

    async def stop(self) -> None:
        """End the questions and close the connections to the Sentinels."""
        await self._refresher.stop()
        for listener in self._listeners:
            listener.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)
        await self._clients.close()

    def for_key(self, key: bytes) -> Shard:
        """Return the one shard."""
        del key
        return self._shard

    def shards(self) -> Sequence[Shard]:
        """Return the one shard."""
        return (self._shard,)

    def redirected(self, redirect: Redirect) -> Node | None:
        """Ignore it: nodes behind Sentinel do not redirect."""
        del redirect
        return None

    def contradicted(self, node: Node, role: Role) -> None:
        """Ask the Sentinels."""
        del node, role
        self._refresher.wake()

    def troubled(self, node: Node) -> None:
        """Ask the Sentinels."""
        del node
        self._refresher.wake()

    async def _refresh(self) -> bool:
        view = best_of(await asyncio.gather(*map(self._ask, self._sentinels)))
        if (view is not None) != self._reachable:
            self._reachable = view is not None
            if view is None:
                log.warning("no Sentinel says where %s is", self._service)
            else:
                log.info("the Sentinels answer")
        if view is None:
            return False
        now = self._clock.monotonic()
        if view.epoch < self._epoch and now - self._epoch_heard_at < LOWER_EPOCH_AFTER_S:
            return False
        self._epoch, self._epoch_heard_at = view.epoch, now
        self._apply(view.primary, view.replicas)
        return True

    async def _ask(self, address: Address) -> View | None:
        questions = self._clients.at(address).pipeline(transaction=False)
        for question in ("SENTINEL GET-MASTER-ADDR-BY-NAME", "SENTINEL MASTER", "SENTINEL SLAVES"):
            questions.execute_command(question, self._service)
        try:
            return view_of(*await questions.execute())
        except (RedisError, OSError, TimeoutError, KeyError, TypeError, ValueError):
            return None  # down, does not know the service, or answers nonsense: the others are asked too

    def _apply(self, primary: Address, replicas: Sequence[Address]) -> None:
        node = self._nodes.node(primary, self._login)
        followers = tuple(self._nodes.node(address, self._login) for address in replicas if address != primary)
        old = self._shard
        if old.primary is not node or old.replicas != followers:
            log.info("primary %s, replicas %s", primary, ", ".join(map(str, replicas)) or "none")
            expects = old.expects_replicas or bool(followers)
            if self._known:
                self._shard = old.followed_by(node, followers, expects_replicas=expects)
            else:
                now = self._clock.monotonic()
                self._shard = Shard(node, followers, expects_replicas=expects, answered_at=now)
        self._known = True
        self._nodes.retain(self._shard.nodes)

    async def _listen(self, address: Address) -> None:
        while True:
            try:
                await self._hear(self._clients.at(address))
            except (RedisError, OSError, TimeoutError):
                await self._clock.sleep(_RELISTEN_S)  # polling goes on meanwhile

    async def _hear(self, client: Redis) -> None:
        """Listen on one connection until it fails; raise what it failed with."""
        async with client.pubsub() as channel:
            await channel.subscribe("+switch-master", "+slave", "+sdown", "-sdown")
            while True:
                message = await self._next(channel)
                if message["channel"] == b"+switch-master":
                    self._switched(message["data"].decode("utf-8", "replace").split())
                self._refresher.wake()

    async def _next(self, channel: PubSub) -> Mapping[str, Any]:
        """Return the next event; a connection silent for too long must answer a PING or counts as dead."""
        pinged = False
        while True:
            message: dict[str, Any] | None = await channel.get_message(timeout=_SILENCE_S)
            if message is not None and message["type"] == "message":
                return message
            if message is None and pinged:
                raise TimeoutError
            pinged = message is None
            if pinged:
                await channel.ping()

    def _switched(self, words: Sequence[str]) -> None:
        """Apply ``+switch-master <service> <old host> <old port> <new host> <new port>`` at once."""
        if len(words) != 5 or words[0] != self._service or not self._known:
            return
        primary = Address(words[3], int(words[4]))
        others = [node.address for node in self._shard.replicas]
        self._apply(primary, [address for address in others if address != primary])
