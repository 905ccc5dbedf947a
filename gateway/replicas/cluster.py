"""Cluster topology: which shard holds a key's slot, learnt from the nodes and corrected by their redirects.

Knows: slots, hash tags, CLUSTER SLOTS, what MOVED and ASK mean for the map.
Must not know: reads, lag, who is chosen.

The map is refreshed every few seconds and soon after any report. Some known nodes are asked first; if they do not
show a whole cluster, the configured seeds are asked too, their names resolved anew: a cluster that went away and came
back at other addresses is found again. Seeds are never dropped, and no answer ever empties the map.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.clock import Clock
from gateway.replicas.discovery import QUESTION_TIMEOUT_S, Account, Clients, Refresher, Resolve, resolve
from gateway.replicas.login import Address, Login
from gateway.replicas.slots import SLOTS, ClusterView, best_of, view_of
from gateway.replicas.topology import Redirect, Role, Shard

if TYPE_CHECKING:
    from gateway.replicas.node import Node, Nodes

log = logging.getLogger(__name__)

REFRESH_S = 3.0
ASKED_AT_ONCE = 3
"""Enough to outvote a node that lags behind; more would only be load in a large cluster."""
IMPORTER_KEPT_S = 60.0
"""How long the target of an ASK is kept though no slot is its own yet."""


class ClusterTopology:
    """Follow a cluster's slot map."""

    def __init__(
        self,
        nodes: Nodes,
        seeds: Sequence[Address],
        *,
        login: Login,
        account: Account,
        clock: Clock,
        random: Random,
        resolve_names: Resolve = resolve,
    ) -> None:
        """``login`` must ask for ``readonly``, so that replicas answer for their primary's slots."""
        self._nodes, self._seeds, self._login = nodes, tuple(seeds), login
        self._clients, self._clock, self._random, self._resolve = Clients(account), clock, random, resolve_names
        self._nobody = Shard(None, (), expects_replicas=False, answered_at=clock.monotonic())
        self._slots: list[Shard] = [self._nobody] * SLOTS
        self._shards: tuple[Shard, ...] = (self._nobody,)
        self._unheld: set[int] = set()
        self._sources: list[Address] = []
        self._answered: set[Address] = set()
        self._epoch = -1
        self._whole: bool | None = None
        self._importers: dict[Node, float] = {}
        self._refresher = Refresher(self._refresh, clock, every_s=REFRESH_S)

    async def start(self) -> None:
        """Learn the map once, and go on behind."""
        await self._refresher.start(patience_s=2 * QUESTION_TIMEOUT_S)

    async def stop(self) -> None:
        """End the questions and close their connections."""
        await self._refresher.stop()
        await self._clients.close()

    def for_key(self, key: bytes) -> Shard:
        """Return the shard of the key's slot, which its hash tag decides if it has one. Costs 0.3 µs."""
        return self._slots[key_slot(key)]

    def shards(self) -> Sequence[Shard]:
        """Return every shard, in the order of their lowest slots."""
        return self._shards

    def redirected(self, redirect: Redirect) -> Node | None:
        """Correct the slot's shard (MOVED), or note who imports it (ASK: the map stays); return whom to ask."""
        node = self._nodes.node(redirect.address, self._login)
        if redirect.kind == "ASK":
            self._importers[node] = self._clock.monotonic() + IMPORTER_KEPT_S
            return node
        self._refresher.wake()
        shard = self._slots[redirect.slot]
        if shard.primary is node:
            return node
        if node in shard.replicas:
            rest = [other for other in shard.replicas if other is not node]
            self._replace(shard, shard.followed_by(node, rest))
        else:
            led = self._shard_led_by(node)
            self._slots[redirect.slot] = led or self._new_shard(node, ())
            if led is None:
                self._publish()
        return node

    def contradicted(self, node: Node, role: Role) -> None:
        """Refresh the map: a failover may have happened."""
        del node, role
        self._refresher.wake()

    def troubled(self, node: Node) -> None:
        """Refresh the map."""
        del node
        self._refresher.wake()

    def _shard_led_by(self, node: Node) -> Shard | None:
        return next((shard for shard in self._shards if shard.primary is node), None)

    def _new_shard(self, primary: Node, replicas: Sequence[Node]) -> Shard:
        now = self._clock.monotonic()
        return Shard(primary, replicas, expects_replicas=bool(replicas), answered_at=now)

    def _replace(self, old: Shard, new: Shard) -> None:
        self._slots = [new if shard is old else shard for shard in self._slots]
        self._publish()

    def _publish(self) -> None:
        held = tuple(shard for shard in dict.fromkeys(self._slots) if shard is not self._nobody)
        self._shards = held or (self._nobody,)
        now = self._clock.monotonic()
        self._importers = {node: until for node, until in self._importers.items() if until > now}

    async def _refresh(self) -> bool:
        self._sources = self._nodes_to_ask()
        view = await self._ask_all(self._sources)
        if view is None or not view.whole:
            resolved = await asyncio.gather(*map(self._resolve, self._seeds))
            seeds = dict.fromkeys(address for addresses in resolved for address in addresses)
            self._sources += [address for address in seeds if address not in self._sources]
            view = best_of((view, await self._ask_all(seeds)))
        self._note(view)
        await self._clients.retain(self._sources)
        if view is None or (not view.whole and view.epoch < self._epoch):
            return False
        self._apply(view)
        return view.whole

    def _nodes_to_ask(self) -> list[Address]:
        """Return some nodes of the map: those that answered last time, so that no connection is opened in vain."""
        known = dict.fromkeys(node.address for shard in self._shards for node in shard.nodes)
        kept = [address for address in self._sources if address in known and address in self._answered]
        others = [address for address in known if address not in kept]
        missing = max(0, ASKED_AT_ONCE - len(kept))
        return kept[:ASKED_AT_ONCE] + self._random.sample(others, min(missing, len(others)))

    async def _ask_all(self, addresses: Iterable[Address]) -> ClusterView | None:
        return best_of(await asyncio.gather(*map(self._ask, addresses)))

    async def _ask(self, address: Address) -> ClusterView | None:
        questions = self._clients.at(address).pipeline(transaction=False)
        questions.execute_command("CLUSTER INFO")
        questions.execute_command("CLUSTER SLOTS")
        try:
            info, slots = await questions.execute()
            self._answered.add(address)
            return view_of(info, slots, address)
        except (RedisError, OSError, TimeoutError, ValueError):
            self._answered.discard(address)
            return None  # down, or no cluster node: others are asked too

    def _note(self, view: ClusterView | None) -> None:
        whole = view is not None and view.whole
        if whole != self._whole:
            self._whole = whole
            log.log(*(logging.INFO, "the cluster is whole") if whole else (logging.WARNING, "the cluster is not whole"))

    def _apply(self, view: ClusterView) -> None:
        """Make the shards of a view; those whose nodes are the same stay the same objects.

        Slots of which the view says nothing keep the shard they had, unless a whole cluster says twice that nobody
        holds them: asking their former nodes would only make those rest, and fail reads of what they do hold. (Once is
        not enough: a node that has just joined learns the map piece by piece.)
        """
        self._epoch = view.epoch
        followers: dict[Address, dict[Address, None]] = {}
        for held in view.ranges:
            followers.setdefault(held.primary, {}).update(dict.fromkeys(held.replicas))
        slots = list(self._slots)
        made: dict[Address, Shard] = {}
        for held in view.ranges:
            if held.primary not in made:
                made[held.primary] = self._shard(held.primary, tuple(followers[held.primary]))
            slots[held.first : held.last + 1] = [made[held.primary]] * (held.last - held.first + 1)
        unheld = view.unheld() if view.whole else set()
        for slot in unheld & self._unheld:
            slots[slot] = self._nobody
        self._unheld = unheld
        if slots != self._slots:
            self._slots = slots
            self._publish()
        self._nodes.retain([*(node for shard in self._shards for node in shard.nodes), *self._importers])

    def _shard(self, primary: Address, replicas: Sequence[Address]) -> Shard:
        node = self._nodes.node(primary, self._login)
        followers = tuple(self._nodes.node(address, self._login) for address in replicas)
        old = self._shard_led_by(node) or self._shard_followed_by(node)
        if old is None:
            return self._new_shard(node, followers)
        if old.primary is node and old.replicas == followers:
            return old
        return old.followed_by(node, followers, expects_replicas=old.expects_replicas or bool(followers))

    def _shard_followed_by(self, node: Node) -> Shard | None:
        return next((shard for shard in self._shards if node in shard.replicas), None)
