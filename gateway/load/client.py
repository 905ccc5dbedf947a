"""The client that a load writes with: always to the primary, wherever the settings say that it is.

Knows: redis-py's blocking clients, the three shapes of ``[redis]``.
Must not know: what is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from gateway.load.board import LoadFailed
from gateway.settings import RedisSettings

CONNECT_S = 5.0
ANSWER_S = 30.0
"""A load is no read: it may wait while Redis forks or frees, so the read time-outs of the settings do not apply."""


@contextmanager
def primary(settings: RedisSettings) -> Iterator[Redis | RedisCluster]:
    """Give a client of the primary (Cluster: of all of them), closed at the end. Raise ``LoadFailed``."""
    try:
        client = _client(settings)
    except (RedisError, RedisClusterException, OSError) as error:
        raise LoadFailed(f"Redis cannot be reached: {error}") from error
    with client:
        yield client


def _client(settings: RedisSettings) -> Redis | RedisCluster:
    account = _account(settings)
    if settings.cluster:
        # redis-py's own constructors carry no types
        nodes = [ClusterNode(*_host_and_port(address)) for address in settings.cluster]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, **account)
    # No retries: a load that broke is run again as a whole, and a swap must never be sent twice.
    account["retry"] = Retry(NoBackoff(), 0)
    if settings.sentinels:
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            [_host_and_port(address) for address in settings.sentinels],
            sentinel_kwargs=_sentinel_account(settings),
            **account,
        )
        client: Redis = sentinel.master_for(settings.service or "")  # type: ignore[no-untyped-call]
        return client
    url = urlsplit(settings.primary or "")._replace(scheme="rediss" if settings.encrypted else "redis")
    return Redis.from_url(url.geturl(), **account)


def _account(settings: RedisSettings) -> dict[str, Any]:
    """Return what every connection needs. RESP2: HELLO and its notifications would ask an account for more commands."""
    account: dict[str, Any] = {"protocol": 2, "socket_timeout": ANSWER_S, "socket_connect_timeout": CONNECT_S}
    if settings.password is not None:
        account["password"] = settings.password.get_secret_value()
    if settings.username is not None:
        account["username"] = settings.username
    if settings.encrypted and not settings.primary:
        account["ssl"] = True
    if settings.encrypted and settings.tls_ca_file is not None:
        account["ssl_ca_certs"] = str(settings.tls_ca_file)
    return account


def _sentinel_account(settings: RedisSettings) -> dict[str, Any]:
    account = {key: value for key, value in _account(settings).items() if key not in ("username", "password")}
    account["retry"] = Retry(NoBackoff(), 0)
    if settings.sentinel_password is not None:
        account["password"] = settings.sentinel_password.get_secret_value()
    if settings.sentinel_username is not None:
        account["username"] = settings.sentinel_username
    return account


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(f"//{address}")
    return parts.hostname or "", parts.port or 6379
