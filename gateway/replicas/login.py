"""Login: how a connection to a node is opened.

Knows: addresses, accounts, TLS, and the switches of a handshake.
Must not know: where they were configured.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Address(NamedTuple):
    """Where a node listens. ``host`` is an IP address wherever names are resolved by the topology."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What every connection to a node says first. Secrets stay out of ``repr``, and so out of logs.

    ``tls_name`` is the name that the certificate must carry where ``address`` is a resolved one.
    """

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    database: int = 0
    protocol: Literal[2, 3] = 2
    readonly: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_name: str | None = None
