"""The client that a load writes with: always to the primary, wherever the settings say that it is.

Knows: redis-py's blocking clients, the three shapes of ``[redis]``.
Must not know: what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    except UnicodeError as error:  # of a name that a node of the cluster announces
        raise LoadFailed("Redis cannot be reached: a node's host name is malformed.") from error
    with client:
        yield client


def _client(settings: RedisSettings) -> Redis | RedisCluster:
    account = _account(settings)
    if settings.cluster:
        # redis-py's own constructors carry no types
        nodes = [ClusterNode(*place) for place in _places(settings.cluster)]  # type: ignore[no-untyped-call]
        return RedisCluster(startup_nodes=nodes, **account)
    # No retries: a load that broke is run again as a whole, and a swap must never be sent twice.
    account["retry"] = Retry(NoBackoff(), 0)
    if settings.sentinels:
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            _places(settings.sentinels),
            sentinel_kwargs=_sentinel_account(settings),
            **account,
        )
        client: Redis = sentinel.master_for(settings.service or "")  # type: ignore[no-untyped-call]
        return client
    url = urlsplit(settings.primary or "")._replace(scheme="rediss" if settings.encrypted else "redis")
    _places([url.netloc])
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


def _places(addresses: Sequence[str]) -> list[tuple[str, int]]:
    """Return hosts and ports, but for names that no name server can be asked for: redis-py raises UnicodeError there.

    Raise ``LoadFailed`` if none is left.
    """
    parts = [urlsplit(f"//{address}") for address in addresses]
    places = [(each.hostname or "", each.port or 6379) for each in parts if _can_be_asked_for(each.hostname or "")]
    if not places:
        raise LoadFailed(f"Redis cannot be reached: {', '.join(addresses)} cannot be resolved.")
    return places


def _can_be_asked_for(host: str) -> bool:
    try:
        host.encode("idna")  # as getaddrinfo does
    except UnicodeError:
        return False
    return True
