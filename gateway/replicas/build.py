"""Build: replica reads from the settings of ``[redis]``.

Knows: which shape needs which topology, URLs, accounts, TLS.
Must not know: how any of them works.
"""

from __future__ import annotations

import random as random_module
import ssl
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.clock import Clock
from gateway.counters import Counters
from gateway.replicas.cluster import ClusterTopology
from gateway.replicas.commands import Script
from gateway.replicas.discovery import Account
from gateway.replicas.fixed import FixedTopology
from gateway.replicas.limits import Limits
from gateway.replicas.login import Address, Login
from gateway.replicas.node import Nodes
from gateway.replicas.reads import ReplicaReads
from gateway.replicas.sentinel import SentinelTopology
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
    topology = topology_of(redis, nodes, clock=clock, random=random)
    return ReplicaReads(topology, nodes, limits_of(redis), clock=clock, counters=counters, random=random)


def topology_of(redis: RedisSettings, nodes: Nodes, *, clock: Clock, random: random_module.Random) -> Topology:
    """Return the topology of the configured shape."""
    login = login_of(redis)
    if redis.shape == "sentinel":
        sentinels = [address_of(f"//{text}", default_port=26379) for text in redis.sentinels]
        account = account_of(redis, redis.sentinel_username, redis.sentinel_password)
        return SentinelTopology(nodes, sentinels, redis.service or "", login=login, account=account, clock=clock)
    if redis.shape == "cluster":
        seeds = [address_of(f"//{text}") for text in redis.cluster]
        account = account_of(redis, redis.username, redis.password)
        login = replace(login, readonly=True)
        return ClusterTopology(nodes, seeds, login=login, account=account, clock=clock, random=random)
    replicas = [address_of(url) for url in redis.replicas]
    return FixedTopology(nodes, address_of(redis.primary or ""), replicas, login, clock=clock)


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


def account_of(redis: RedisSettings, username: str | None, password: SecretStr | None) -> Account:
    """Return who asks Sentinels or cluster nodes where the nodes are; TLS is the same everywhere."""
    secret = password.get_secret_value() if password else None
    return Account(username=username, password=secret, encrypted=redis.encrypted, ca_file=redis.tls_ca_file)


def address_of(url: str, *, default_port: int = 6379) -> Address:
    """Return host and port of ``redis://host:port/database`` or ``//host:port``."""
    parts = urlsplit(url)
    return Address(parts.hostname or "", parts.port or default_port)
