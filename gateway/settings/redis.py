"""Redis settings: which of the three shapes, with what account, inside which limits.

Knows: the keys of ``[redis]`` and what contradicts what among them.
Must not know: how a connection is made, or a node chosen.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, PrivateAttr, SecretStr

from gateway.errors import Problem
from gateway.settings.forms import (
    AddressText,
    FilePath,
    Flag,
    LagMs,
    LongS,
    NodeUrl,
    Rate,
    Text,
    TimeoutMs,
    secret_in,
)
from gateway.settings.partial import Section, certain

Shape = Literal["fixed", "sentinel", "cluster"]
_SHAPES = "give exactly one of: primary (with replicas), sentinels with service, or cluster"


class RedisSettings(Section):
    """Where the boards are. Exactly one of three shapes: ``primary``, ``sentinels`` with ``service``, ``cluster``."""

    primary: NodeUrl | None = Field(default=None, description="One primary; a name may resolve to several nodes.")
    replicas: Annotated[tuple[NodeUrl, ...], Field(strict=False)] = Field(
        default=(), description="Its replicas; a name may resolve to several (reader endpoints)."
    )
    sentinels: Annotated[tuple[AddressText, ...], Field(strict=False)] = Field(
        default=(), description="The Sentinels that watch the primary."
    )
    service: Text | None = Field(default=None, description="What the Sentinels call the primary.")
    cluster: Annotated[tuple[AddressText, ...], Field(strict=False)] = Field(
        default=(), description="Some nodes of a Redis Cluster; the others are found."
    )
    username: Text | None = Field(
        default=None, description="The account on every node; Redis's default user if not given."
    )
    password_file: FilePath | None = Field(
        default=None, description="A file that holds nothing but its password; read once, at the start."
    )
    tls: Flag = Field(default=False, description="Whether connections are encrypted; rediss:// says the same.")
    tls_ca_file: FilePath | None = Field(
        default=None, description="The certificates to trust, in PEM form; the system's if not given."
    )
    sentinel_username: Text | None = Field(default=None, description="The account on the Sentinels.")
    sentinel_password_file: FilePath | None = Field(
        default=None, description="A file that holds nothing but its password; read once, at the start."
    )
    read_timeout_ms: TimeoutMs = Field(default=200, description="How long one attempt on one node may take.")
    request_budget_ms: TimeoutMs = Field(
        default=500, description="What Redis may cost one request in all, retries included."
    )
    max_lag_ms: LagMs = Field(default=2000, description="A replica further behind is not read while another can be.")
    failover_stale_s: LongS = Field(
        default=60.0, description="How long replicas are read, marked stale, while no primary answers."
    )
    primary_fallback: Flag = Field(default=True, description="Whether the primary is read when no replica is usable.")
    primary_max_reads_per_s: Rate = Field(
        default=500, description="Such reads a second and worker; above it 503, so that reads never crush writes."
    )

    _password: SecretStr | None = PrivateAttr(None)
    _sentinel_password: SecretStr | None = PrivateAttr(None)

    @property
    def password(self) -> SecretStr | None:
        """The content of ``password_file``, read once. Raises OSError or ValueError, which loading has ruled out."""
        if self._password is None and self.password_file is not None:
            self._password = secret_in(self.password_file)
        return self._password

    @property
    def sentinel_password(self) -> SecretStr | None:
        """The content of ``sentinel_password_file``, read once."""
        if self._sentinel_password is None and self.sentinel_password_file is not None:
            self._sentinel_password = secret_in(self.sentinel_password_file)
        return self._sentinel_password

    @property
    def shape(self) -> Shape:
        """Which of the three shapes this is."""
        if self.cluster:
            return "cluster"
        return "sentinel" if self.sentinels else "fixed"

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS: ``tls``, or ``rediss://`` in the primary's address."""
        return self.tls or (self.primary or "").startswith("rediss:")

    @property
    def read_timeout_s(self) -> float:
        """``read_timeout_ms`` in seconds."""
        return self.read_timeout_ms / 1000

    @property
    def request_budget_s(self) -> float:
        """``request_budget_ms`` in seconds."""
        return self.request_budget_ms / 1000

    @property
    def max_lag_s(self) -> float:
        """``max_lag_ms`` in seconds."""
        return self.max_lag_ms / 1000


def contradictions(redis: RedisSettings) -> Iterator[Problem]:
    """Yield what is wrong between keys that are each right."""
    accounts = (("username", "password_file"), ("sentinel_username", "sentinel_password_file"))
    yield from certain(
        _one_shape(redis),
        _replicas(redis),
        _service(redis),
        *(_of_sentinels(redis, key) for key in ("sentinel_username", "sentinel_password_file")),
        *(_account(redis, user, file) for user, file in accounts),
        unreadable(redis, "password_file", "password", section="redis"),
        unreadable(redis, "sentinel_password_file", "sentinel_password", section="redis"),
        _databases(redis),
        _schemes(redis),
        _authorities(redis),
        _encryption(redis),
        _budget(redis),
    )


def _budget(redis: RedisSettings) -> Iterator[Problem]:
    if redis.read_timeout_ms > redis.request_budget_ms:
        yield Problem(
            "redis.read_timeout_ms",
            f"must not be above request_budget_ms ({redis.request_budget_ms}): one attempt would outlast the budget",
        )


def _one_shape(redis: RedisSettings) -> Iterator[Problem]:
    given = [redis.gives("primary"), redis.gives("sentinels"), redis.gives("cluster")]
    if sum(given) != 1:
        yield Problem("redis", f"{_SHAPES}; {'none' if not any(given) else 'more than one'} is given")


def _replicas(redis: RedisSettings) -> Iterator[Problem]:
    if redis.gives("replicas") and not redis.gives("primary"):
        yield Problem("redis.replicas", "belongs to primary; Sentinel and Cluster find the replicas themselves")


def _service(redis: RedisSettings) -> Iterator[Problem]:
    if redis.gives("sentinels") and not redis.gives("service"):
        yield Problem("redis.service", "is required beside sentinels: the name they know the primary by")
    if redis.gives("service") and not redis.gives("sentinels"):
        yield Problem("redis.service", "belongs to sentinels, and none are given")


def _of_sentinels(redis: RedisSettings, key: str) -> Iterator[Problem]:
    if redis.gives(key) and not redis.gives("sentinels"):
        yield Problem(f"redis.{key}", "belongs to sentinels, and none are given")


def _account(redis: RedisSettings, user: str, file: str) -> Iterator[Problem]:
    if redis.gives(user) and not redis.gives(file):
        yield Problem(f"redis.{file}", f"is required beside {user}: the file that holds its password")


def unreadable(holder: object, key: str, secret: str, *, section: str) -> Iterator[Problem]:
    """Read a secret that a key names; yield the problem if its file cannot be read (the content is never shown)."""
    path: Path | None = getattr(holder, key)
    try:
        getattr(holder, secret)
    except OSError as error:
        yield Problem(f"{section}.{key}", f"cannot read {path}: {error.strerror}")
    except ValueError:
        yield Problem(f"{section}.{key}", f"must name a file that holds a password as UTF-8 text; {path} does not")


def _nodes(redis: RedisSettings) -> list[SplitResult]:
    return [urlsplit(url) for url in (redis.primary, *redis.sound("replicas")) if url]


def _databases(redis: RedisSettings) -> Iterator[Problem]:
    if len({url.path.strip("/") or "0" for url in _nodes(redis)}) > 1:
        yield Problem("redis.replicas", "must name the same database as primary: a replica holds what its primary does")


def _schemes(redis: RedisSettings) -> Iterator[Problem]:
    if len({url.scheme for url in _nodes(redis)}) > 1:
        yield Problem("redis.replicas", "must begin with redis:// or rediss:// as primary does")


def _authorities(redis: RedisSettings) -> Iterator[Problem]:
    if redis.tls_ca_file is not None:
        fault = _fault_of_certificates(redis.tls_ca_file)
        if fault is not None:
            yield Problem("redis.tls_ca_file", fault)


def _fault_of_certificates(path: Path) -> str | None:
    import ssl  # most gateways talk to Redis in the clear, and the parent of their workers stays small

    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"must name a file of certificates; {path} is {'a folder' if path.is_dir() else 'a pipe or device'}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        if error.reason != "NO_CERTIFICATE_OR_CRL_FOUND":
            return f"must name a file of certificates in PEM form; what {path} holds is damaged ({error.reason})"
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    else:
        if context.cert_store_stats()["x509"]:
            return None
    return f"must name a file of certificates in PEM form; {path} holds none"


def _encryption(redis: RedisSettings) -> Iterator[Problem]:
    if redis.tls_ca_file is not None and not redis.encrypted:
        yield Problem("redis.tls_ca_file", "needs tls = true: without it nothing is encrypted")
