"""Varnish: its configuration from one declaration.

Knows: which numbers and names fill the text's gaps.
Must not know: files, commands, running Varnish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import ceil

from cdn.edges.site import (
    EXPOSED_FIELDS,
    GATEWAY_KEEPALIVE_S,
    KNOWN_PARAMETERS,
    READABLE_TARGET,
    REQUEST_ID,
    Site,
    commented,
    encoded_name,
    repeated,
)
from cdn.edges.varnish_text import BACKEND, HARD_PURGE, PARAMETER, SOFT_PURGE, TAGGED, VCL

MARGIN_S = 2
"""What the gateway may need beside Redis, before Varnish gives up."""


def configuration(site: Site) -> str:
    """Return the whole VCL."""
    backends = [
        BACKEND.substitute(number=number, host=host, port=port, timeout_s=ceil(site.request_budget_s) + MARGIN_S)
        for number, (host, port) in enumerate(map(_address, site.origins))
    ]
    members = [
        f"    {director}.add_backend({prefix}_{number});"
        for number in range(len(site.origins))
        for director, prefix in (("gateway", "gateway"), ("readiness", "ready"))
    ]
    return VCL.substitute(
        {name: _parameter(name) for name in KNOWN_PARAMETERS},
        notes=commented(["", *notes(site)]),
        gateway_keepalive_s=GATEWAY_KEEPALIVE_S,
        backends="\n".join(backends),
        members="\n".join(members),
        purgers="\n".join(f"    {_network(each)};" for each in site.purgers),
        secret=_secret(site),
        modules="the modules that come with it" + (" and xkey, of Debian's varnish-modules" if site.soft_purge else ""),
        imports="import xkey;\n" if site.soft_purge else "",
        purge=SOFT_PURGE if site.soft_purge else HARD_PURGE,
        tagged=TAGGED if site.soft_purge else "",
        repeated=repeated(KNOWN_PARAMETERS),
        readable=READABLE_TARGET,
        request_id=REQUEST_ID,
        exposed=EXPOSED_FIELDS,
        bad_gateway=_BAD_GATEWAY,
    )


def notes(site: Site) -> Iterator[str]:
    """Yield what Varnish cannot express of the declaration, for people who rely on it."""
    yield "What Varnish cannot do of what the settings declare:"
    if "varnish" not in site.dialects:
        yield '- dialects does not hold "varnish", so no tags are sent: a purge finds nothing.'
    yield "- stale-if-error: for as long as the probes find the gateway away or not ready. A single board that fails"
    yield "  behind a gateway that is ready is served stale within stale-while-revalidate, then its error is shown."
    if not site.soft_purge:
        yield "- Soft purge by tag: needs the module xkey, which does not come with Varnish (--soft-purge if it is"
        yield "  there). A purge here removes the answers."
    yield "- br: Varnish stores gzip and unpacks it for clients that cannot read it."
    yield "- A rate limit for each client needs a module, too."
    yield "- What Varnish's parser refuses (two Hosts, control bytes, a head that is too long) is its own 400: no body,"
    yield "  no header fields, and the connection ends."


_BAD_GATEWAY = json.dumps(
    {
        "type": "about:blank",
        "title": "Bad gateway",
        "status": 503,
        "detail": "The gateway did not answer.",
        "code": "bad_gateway",
    },
    separators=(",", ":"),
)


def _parameter(name: str) -> str:
    pattern = encoded_name(name)
    # The default limit and no limit are one entry.
    but = f' && req.http.X-LB-Args !~ "(^|&){pattern}=100(&|$)"' if name == "limit" else ""
    return PARAMETER.substitute(name=name, pattern=pattern, but=but)


def _address(origin: str) -> tuple[str, str]:
    host, _, port = origin.rpartition(":")
    return host.strip("[]") or "127.0.0.1", port


def _network(cidr: str) -> str:
    address, _, bits = cidr.partition("/")
    return f'"{address}"/{bits}' if bits else f'"{address}"'


def _secret(site: Site) -> str:
    """Return the further condition under which a purge is refused; an unreadable or empty file refuses all."""
    if site.purge_secret_file is None:
        return ""
    read = f'regsub(std.fileread("{site.purge_secret_file}"), "\\s+$", "")'
    return f' || !req.http.X-Purge-Secret || req.http.X-Purge-Secret == "" || req.http.X-Purge-Secret != {read}'
