"""Sections: one model for each table of the TOML file but the boards and Redis.

Knows: their keys, defaults and what each is for.
Must not know: where the values come from, or who reads them.

A description is the reference: ``docs/configuration.md`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, SecretStr

from gateway.settings.forms import (
    Address,
    AdminText,
    DrainS,
    FilePath,
    Flag,
    Form,
    HostText,
    HttpUrl,
    IntervalS,
    LifeMs,
    LongS,
    Port,
    StoreUrl,
    Text,
    TierUrl,
    TimeoutMs,
    Workers,
    address,
    secret_in,
)
from gateway.settings.partial import Section

Dialect = Literal["nginx", "varnish", "fastly", "cloudflare"]


class ServerSettings(Section):
    """Where the gateway listens, in how many processes, and how it stops."""

    host: HostText = Field(
        default="127.0.0.1", description="The address of the public port; the container image sets 0.0.0.0."
    )
    port: Port = Field(default=8080, description="The public port.")
    workers: Workers = Field(default=1, description="Processes that answer; each keeps snapshots of its own.")
    admin: AdminText = Field(
        default="127.0.0.1:9464",
        description="Where /metrics and health for operators are, held by the parent process; never make it public.",
    )
    drain_s: DrainS = Field(
        default=5.0,
        description="After SIGTERM: how long the gateway says not ready and still accepts, before it stops.",
    )

    @property
    def admin_address(self) -> Address | None:
        """Where the admin listener binds; None where it is switched off."""
        return None if self.admin == "none" else address(self.admin)


class LogSettings(Section):
    """What is logged, to standard error, and how it looks."""

    format: Literal["text", "json"] = Field(default="text", description="Lines for people, or one JSON object a line.")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least that is logged.")
    access: Literal["off", "sampled", "on"] = Field(
        default="off", description="A line for each request: none, one in a hundred and every 5xx, or all."
    )


class LastKnownSettings(Section):
    """Where the last known boards survive a restart; in memory they are kept in any case."""

    store: StoreUrl = Field(
        default="none",
        repr=False,
        description='A folder, a PostgreSQL database or an S3 bucket. With "none", a worker that is replaced during an '
        "outage knows no boards until Redis is back.",
    )
    interval_s: IntervalS = Field(default=10.0, description="How often a board that changed is saved.")
    keep_s: LongS = Field(
        default=86_400.0, description="How old a last known board may be and still be served, marked stale."
    )
    families: Flag = Field(
        default=False, description="Whether boards of families, which clients' requests bring about, are saved too."
    )


class SharedTierSettings(Section):
    """A second tier in Redis, so that many instances pay one origin read a TTL; off unless the table is there."""

    url: TierUrl = Field(repr=False, description="The Redis of the shared tier, with an account of its own.")
    prefix: Text = Field(default="lbgw:", description="What its keys begin with.")
    ttl_ms: LifeMs = Field(default=1000, description="How long an entry is kept there.")
    timeout_ms: TimeoutMs = Field(default=50, description="How long a read waits for it before it goes on without.")


class PurgeTarget(Section):
    """An edge that the ``purge`` command tells to drop a board."""

    edge: Literal["varnish", "fastly", "cloudflare"] = Field(description="What kind of edge it is.")
    url: HttpUrl | None = Field(
        default=None,
        repr=False,
        description="Varnish: where it takes purges. The others: their API, if not the public one.",
    )
    service: Text | None = Field(default=None, description="Fastly: the id of the service.")
    zone: Text | None = Field(default=None, description="Cloudflare: the id of the zone.")
    token_file: FilePath | None = Field(
        default=None, description="A file that holds nothing but the token (Varnish: the secret that it asks for)."
    )
    token_variable: Text | None = Field(
        default=None, description="The environment variable that holds it, in place of a file."
    )
    timeout_ms: TimeoutMs = Field(default=2000, description="How long one attempt may take.")
    attempts: Annotated[int, Field(ge=1, le=10), Form("a whole number from 1 to 10")] = Field(
        default=3, description="How often a purge is tried in all."
    )

    _token: SecretStr | None = PrivateAttr(None)

    def take_token(self, environ: Mapping[str, str]) -> bool:
        """Keep what ``token_variable`` names; return whether there is such a variable, and something in it."""
        value = environ.get(self.token_variable or "", "")
        self._token = SecretStr(value) if value else None
        return bool(value)

    @property
    def token(self) -> SecretStr | None:
        """What loading took from the environment, or the content of ``token_file``, read once.

        Raises OSError or ValueError, which loading has ruled out.
        """
        if self._token is None and self.token_file is not None:
            self._token = secret_in(self.token_file)
        return self._token


class CdnSettings(Section):
    """What the edges in front of the gateway understand, and how they are purged."""

    dialects: Annotated[tuple[Dialect, ...], Field(strict=False)] = Field(
        default=(), description="Headers for particular edges, beside the standard ones."
    )
    purge: Annotated[tuple[PurgeTarget, ...], Field(strict=False)] = Field(
        default=(), description="The edges to purge."
    )
