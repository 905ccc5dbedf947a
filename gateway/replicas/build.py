"""Build: replica reads from the settings of ``[redis]``.

Knows: which shape needs which topology, URLs, accounts, TLS.
Must not know: how any of them works.
"""

from __future__ import annotations

import random as random_module
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.clock import Clock
from gateway.counters import Counters
from gateway.replicas.commands import Script
from gateway.replicas.fixed import FixedTopology
from gateway.replicas.limits import Limits
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Nodes
from gateway.replicas.reads import ReplicaReads
from gateway.replicas.topology import Topology
from gateway.settings.redis import RedisSettings


def build(
    redis: RedisSettings,
    *,
    scripts: Sequence[Script],
    clock: Clock,
    counters: Counters,
    random: random_module.Random,
) -> ReplicaReads:
    """Return replica reads, not started; ``scripts`` are loaded with every connection. Raises OSError (CA file)."""
    nodes = Nodes(clock=clock, random=random, scripts=scripts, read_timeout_s=redis.read_timeout_s)
    topology = topology_of(redis, nodes, clock=clock)
    return ReplicaReads(topology, nodes, limits_of(redis), clock=clock, counters=counters, random=random)


def topology_of(redis: RedisSettings, nodes: Nodes, *, clock: Clock) -> Topology:
    """Return the topology of the configured shape."""
    primary = redis.primary or ""
    replicas = [address_of(url) for url in redis.replicas]
    return FixedTopology(nodes, address_of(primary), replicas, login_of(redis), clock=clock)


def limits_of(redis: RedisSettings) -> Limits:
    """Return the limits that are configured."""
    return Limits(
        read_timeout_s=redis.read_timeout_s,
        request_budget_s=redis.request_budget_s,
        max_lag_s=redis.max_lag_s,
        failover_stale_s=redis.failover_stale_s,
        primary_fallback=redis.primary_fallback,
        primary_max_reads_per_s=redis.primary_max_reads_per_s,
    )


def login_of(redis: RedisSettings) -> Login:
    """Return how connections to nodes are opened. Raises OSError if the CA file cannot be used."""
    return Login(
        username=redis.username,
        password=redis.password.get_secret_value() if redis.password else None,
        database=int(urlsplit(redis.primary or "").path.strip("/") or 0),
        tls=ssl.create_default_context(cafile=redis.tls_ca_file) if redis.encrypted else None,
    )


def address_of(url: str) -> Address:
    """Return host and port of ``redis://host:port/database``."""
    parts = urlsplit(url)
    return Address(parts.hostname or "", parts.port or 6379)
