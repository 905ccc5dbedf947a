"""Site: what an edge configuration is written from, and the form its texts have.

Knows: the numbers and addresses that any edge needs.
Must not know: the settings' form, the language of any edge.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass

from cdn.dialects import Dialect
from cdn.policy import FINISHED_EDGE_S, Lives

KNOWN_PARAMETERS = ("limit", "from", "to", "period")
"""The query parameters that choose among cacheable answers; an edge's key holds these and no others."""

READABLE_TARGET = r"^[\x21-\x7e]{1,16384}+$"
"""A target that the gateway reads: at most 16 KiB of printable ASCII. Any other it refuses, so no edge may answer such
a one from what it keeps. Possessive: an engine that tries every shorter run would give up on a long one."""

REQUEST_ID = "[A-Za-z0-9._:=+/@-]{1,128}"
"""An ``X-Request-Id`` that the gateway takes from a caller; any other is replaced."""

EXPOSED_FIELDS = "ETag, Age, Retry-After, Cache-Status, Leaderboard-As-Of, Leaderboard-Stale"
"""What a browser's script may read of an answer, an edge's own errors included: the gateway's list."""

GATEWAY_KEEPALIVE_S = 75
"""How long the gateway keeps an idle connection; an edge must give it up sooner, or a request meets its end."""

UPSTREAM_KEEPALIVE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One declaration for every edge. Addresses are ``host:port``, or a port alone for every interface.

    ``lives``: one for each configured board. ``request_budget_s``: what Redis may cost one request. ``listen_h2``:
    where HTTP/2 is spoken, over TLS where ``tls`` gives the files of certificate and key, else to load balancers
    that know to (h2c); None for nowhere. ``rate_per_s``: requests of one client; 0 for no limit.
    ``trusted_proxies``: networks whose ``X-Forwarded-For`` is believed. ``purgers``: networks that may purge.
    ``soft_purge``: Varnish has the module xkey (Debian's ``varnish-modules``), which its own distribution has not.
    """

    lives: tuple[Lives, ...] = ()
    dialects: tuple[Dialect, ...] = ()
    request_budget_s: float = 0.5
    origins: tuple[str, ...] = ("127.0.0.1:8080",)
    listen: str = "8000"
    listen_h2: str | None = "8001"
    tls: tuple[str, str] | None = None
    state_dir: str = "/var/cache/nginx"
    access_log: str = "/dev/stdout"
    rate_per_s: int = 500
    trusted_proxies: tuple[str, ...] = ()
    purgers: tuple[str, ...] = ("127.0.0.1/32", "::1/128")
    purge_secret_file: str | None = None
    soft_purge: bool = False

    @property
    def longest_kept_s(self) -> int:
        """How long after its fetch any answer may still be needed, finished periods aside."""
        return max((each.edge_ttl_s + each.stale_if_error_s for each in self.lives), default=FINISHED_EDGE_S)


class Text(string.Template):
    """A configuration with gaps; ``¤`` marks them, since ``$`` means something in nginx's own language."""

    delimiter = "¤"


def encoded_name(name: str) -> str:
    """Return a pattern for a parameter's name, each letter plain or percent-encoded (``l`` or ``%6C``).

    The gateway decodes names, so an edge that only looked for the plain one could file ``?%6Cimit=1`` under no limit.
    """
    return "".join(f"(?:{letter}|{_percent(letter)})" for letter in name)


def repeated(names: Iterable[str]) -> str:
    """Return a pattern for a query in which a known parameter stands twice: the gateway answers 400, never an edge."""
    each = (f"{encoded_name(name)}(?:=[^&]*)?&(?:.*&)?{encoded_name(name)}(?:[=&]|$)" for name in names)
    return f"(?:^|&)(?:{'|'.join(each)})"


def commented(lines: Iterable[str], mark: str = "#") -> str:
    """Return lines as a comment."""
    return "\n".join(f"{mark} {line}".rstrip() for line in lines)


def _percent(letter: str) -> str:
    code = f"{ord(letter):02X}"
    low = code[1]
    return f"%{code}" if low.isdigit() else f"%{code[0]}[{low}{low.lower()}]"
