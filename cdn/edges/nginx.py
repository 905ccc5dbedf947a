"""nginx: the configuration of the shipped front, from one declaration.

Knows: which numbers and names fill the text's gaps.
Must not know: files, commands, running nginx.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

from cdn.edges import nginx_text
from cdn.edges.site import (
    EXPOSED_FIELDS,
    GATEWAY_KEEPALIVE_S,
    KNOWN_PARAMETERS,
    READABLE_TARGET,
    REQUEST_ID,
    UPSTREAM_KEEPALIVE_S,
    Site,
    commented,
    encoded_name,
    repeated,
)

LOCK_TIMEOUT_MS = 100
"""How long a request waits for another's fetch: many times what a usual one takes, a fifth of nginx's own polling."""

ROUTES = ("top", "ranks", "board", "catalogue", "page")
"""The names that the configuration gives to routes whose answers may be kept."""
CODINGS = ("identity", "gzip", "br")
RATE_BURST = 2
"""How many seconds' worth of requests one client may send at once."""

MARGIN_S = 2
"""What the gateway may need beside Redis, before nginx gives up."""


PROBLEM_PATH = "/./problem/"
"""Where nginx has its own errors: a path that no request can ask for, since nginx resolves the segment ``.``."""


class OwnError(NamedTuple):
    """An error that nginx answers by itself; ``status`` is nginx's, ``shown`` what the client gets."""

    status: int
    shown: int
    code: str
    title: str
    detail: str


OWN_ERRORS = (
    OwnError(400, 400, "bad_request", "Bad request", "The request is not one that HTTP allows."),
    OwnError(405, 405, "method_not_allowed", "Method not allowed", "The gateway only reads: GET, HEAD and OPTIONS."),
    OwnError(408, 408, "request_timeout", "Request timed out", "The request did not arrive in time."),
    OwnError(412, 400, "bad_request", "Bad request", "If-Match and If-Unmodified-Since need a value."),
    OwnError(413, 413, "content_too_large", "Content too large", "The gateway only reads: a request needs no body."),
    OwnError(414, 414, "uri_too_long", "URI too long", "A request target is at most 16 KiB."),
    OwnError(429, 429, "too_many_requests", "Too many requests", "This client asks too often; try again shortly."),
    OwnError(494, 431, "headers_too_large", "Header fields too large", "The header of the request is too long."),
    OwnError(500, 500, "internal_error", "Internal error", "The edge met an error of its own."),
    OwnError(501, 501, "not_implemented", "Not implemented", "The edge does not know this transfer coding."),
    OwnError(502, 502, "bad_gateway", "Bad gateway", "The gateway did not answer."),
    OwnError(503, 503, "unavailable", "Unavailable", "The edge cannot answer at the moment."),
    OwnError(504, 504, "gateway_timeout", "Gateway timed out", "The gateway did not answer in time."),
    OwnError(505, 505, "version_not_supported", "HTTP version not supported", "The edge speaks HTTP/1.1 and HTTP/2."),
)

DESCRIBED = frozenset({"method_not_allowed", "uri_too_long", "internal_error"})
"""Codes that the gateway's own description explains too."""

RETRY_S = frozenset({429, 502, 503, 504})


def configuration(site: Site) -> str:
    """Return the whole of ``nginx.conf``."""
    read_timeout_s = ceil(site.request_budget_s) + MARGIN_S
    head = nginx_text.HEAD.substitute(
        notes=commented(["", *notes(site)]),
        state_dir=site.state_dir,
        inactive_s=max(600, site.longest_kept_s),
        servers="\n".join(f"        server {origin};" for origin in site.origins),
        gateway_keepalive_s=GATEWAY_KEEPALIVE_S,
        upstream_keepalive_s=UPSTREAM_KEEPALIVE_S,
    )
    keys = nginx_text.KEYS.substitute(
        {name: encoded_name(name) for name in KNOWN_PARAMETERS},
        repeated=repeated(KNOWN_PARAMETERS),
        readable=READABLE_TARGET.removeprefix("^"),
        kept=_table((f"{route}::{coding}" for route in ROUTES for coding in CODINGS), "leaderboards"),
        request_id=REQUEST_ID,
        retried="".join(f"{status} 1; " for status in sorted(RETRY_S)),
    )
    server = nginx_text.SERVER.substitute(
        listeners="\n".join(f"        {line}" for line in _listeners(site)),
        access_log=site.access_log,
        read_timeout_s=read_timeout_s,
        budget_s=f"{site.request_budget_s:g}",
        lock_timeout_ms=LOCK_TIMEOUT_MS,
        limit=_limit(site),
        errors="\n".join(map(_error_page, OWN_ERRORS)),
        problem_path=PROBLEM_PATH,
        exposed=EXPOSED_FIELDS,
        problems="".join(map(_problem, OWN_ERRORS)),
    )
    own = _table((f"1{route}" for route in ("", *ROUTES, "health")), '""')
    rate = nginx_text.RATE.substitute(rate=site.rate_per_s, own=own) if site.rate_per_s else ""
    return head + _real_address(site) + rate + keys + server


def notes(site: Site) -> Iterator[str]:
    """Yield what nginx cannot express of the declaration, for people who rely on it."""
    yield "What nginx cannot do of what the settings declare:"
    if "nginx" not in site.dialects:
        yield '- dialects does not hold "nginx", so no X-Accel-Expires is sent: the lives here are the clients\', and a'
        yield "  crowd that meets an expired stale answer goes through to the gateway."
    yield "- Purge: this nginx has none. An answer lives until its life ends, or until the cache's folder is emptied."
    yield "- stale-if-error: nginx counts 403, 404 and 429 as errors too. A leaderboard that is removed from the"
    yield "  settings goes on being served for as long as stale-if-error says."
    yield "- stale-if-error limits what is served while the gateway cannot be reached. While it answers with a 503 or a"
    yield "  504, nginx serves what it has for as long as somebody asks, and notices at once when that is over."
    yield "- An answer past its stale windows is fetched by everyone who asks before the first fetch is back: the lock"
    yield "  is for answers that nginx never had. The gateway makes one read of them all."
    yield "- Seconds: nginx serves an answer up to one second longer than its life."
    yield "- Two If-None-Match fields, which the gateway takes for one list, are a 400: nginx refuses a second line of"
    yield "  any field that it reads itself. One field with a list in it works."
    yield "- If-None-Match beside an If-Modified-Since, which the gateway ignores, is answered in full, never by a 304."
    yield "- An If-Match or If-Unmodified-Since without a value is a 400; with any, it is ignored as by the gateway."
    yield "- A member id with more segments '..' than its path has before them (../../../../../etc, %2F too) is a 400,"
    yield "  code bad_request: nginx resolves them in whatever it reads. Ask for such a one by the batch route,"
    yield "  members?member=, where every id arrives."
    yield "- A request with more than 128 header fields, a 400 of the gateway's, may get a 200 from what is kept."
    yield "- What nginx's parser refuses is its own 400, code bad_request: no Host in HTTP/1.1, two Hosts, control"
    yield "  bytes. So are CONNECT host:port and a method in small letters (the gateway: 405), and OPTIONS * (204)."


def _listeners(site: Site) -> Iterator[str]:
    yield f"listen {site.listen} backlog=4096;"
    if site.listen_h2 is None:
        return
    if site.tls is None:
        yield "# HTTP/2 without TLS, for load balancers that speak it; with TLS: --tls-certificate and --tls-key."
        yield f"listen {site.listen_h2} http2 backlog=4096;"
        return
    certificate, key = site.tls
    yield f"listen {site.listen_h2} ssl http2 backlog=4096;"
    yield f"ssl_certificate     {certificate};"
    yield f"ssl_certificate_key {key};"
    yield "ssl_protocols       TLSv1.2 TLSv1.3;"
    yield "ssl_session_cache   shared:tls:8m;"
    yield "ssl_session_tickets off;"


def _real_address(site: Site) -> str:
    if not site.trusted_proxies:
        return ""
    lines = [f"    set_real_ip_from  {network};" for network in site.trusted_proxies]
    return "\n".join(
        [
            "",
            "    # What stands in front of this nginx and tells it the client's address. Nobody else is believed.",
            *lines,
            "    real_ip_header    X-Forwarded-For;",
            "    real_ip_recursive on;",
            "",
        ]
    )


def _limit(site: Site) -> str:
    if not site.rate_per_s:
        return ""
    return f"            limit_req  zone=clients burst={site.rate_per_s * RATE_BURST} nodelay;\n"


def _table(values: Iterable[str], to: str) -> str:
    """Return lines of a ``map`` by plain values: found by one hash, where an expression costs half a microsecond."""
    return "".join(f'        "{value}" {to};\n' for value in values)


def _error_page(error: OwnError) -> str:
    shown = f"={error.shown} " if error.shown != error.status else ""
    return f"        error_page {error.status} {shown}{PROBLEM_PATH}{error.status};"


def _problem(error: OwnError) -> str:
    body = {
        "type": f"/openapi.json#/components/responses/{error.code}" if error.code in DESCRIBED else "about:blank",
        "title": error.title,
        "status": error.shown,
        "detail": error.detail,
        "code": error.code,
    }
    document = json.dumps(body, separators=(",", ":"))
    return f"            location = {PROBLEM_PATH}{error.status} {{ return {error.shown} '{document}'; }}\n"
