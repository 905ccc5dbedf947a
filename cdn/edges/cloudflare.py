"""Cloudflare: the one cache rule that it needs, from the declaration.

Knows: Cloudflare's rule language and the form of its rulesets.
Must not know: credentials, how a ruleset is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cdn.edges.site import KNOWN_PARAMETERS, Site, commented

EXPRESSION = (
    'http.request.method in {"GET" "HEAD"} and not http.request.uri.query contains "%" and '
    '(raw.http.request.uri.path in {"/" "/openapi.json" "/v1/leaderboards"} or '
    '(starts_with(raw.http.request.uri.path, "/v1/leaderboards/") and '
    'not raw.http.request.uri.path contains "/members"))'
)
"""Which requests the rule is for. A parameter's name may be percent-encoded, which the key would overlook: those
requests go to the gateway."""


def configuration(site: Site) -> str:
    """Return the ruleset as JSON, after a comment on what else must be set, and what cannot be."""
    settings = {
        "cache": True,
        "edge_ttl": {"mode": "respect_origin"},
        "browser_ttl": {"mode": "respect_origin"},
        "serve_stale": {"disable_stale_while_updating": False},
        "cache_key": {"custom_key": {"query_string": {"include": {"list": sorted(KNOWN_PARAMETERS)}}}},
    }
    rule = {
        "description": "Leaderboard gateway: keep what it says may be kept",
        "expression": EXPRESSION,
        "action": "set_cache_settings",
        "action_parameters": settings,
        "enabled": True,
    }
    return commented(notes(site)) + "\n" + json.dumps({"rules": [rule]}, indent=2) + "\n"


def notes(site: Site) -> Iterator[str]:
    """Yield how the rule is used, and what Cloudflare cannot express of the declaration."""
    yield "Cloudflare in front of the leaderboard gateway: the cache rule it needs, since it keeps no JSON by itself."
    yield ""
    yield "Printed by"
    yield "    leaderboard-gateway edge cloudflare --config FILE"
    yield "Send what follows this comment as the body of"
    yield "    PUT https://api.cloudflare.com/client/v4/zones/ZONE/rulesets/phases/http_request_cache_settings/entrypoint"
    yield "which replaces the zone's other cache rules: merge them, where there are some."
    yield ""
    yield "The lives come with every answer, in CDN-Cache-Control (read before Cache-Control), tags in Cache-Tag."
    yield "Also set: Rules > Settings > Normalize URLs to origin: off, or ids do not arrive byte for byte;"
    yield "Always Online: off, or its copies outlive stale-if-error."
    yield ""
    yield "What Cloudflare cannot do of what the settings declare:"
    if "cloudflare" not in site.dialects:
        yield '- dialects does not hold "cloudflare", so no Cache-Tag is sent: a purge finds nothing.'
    yield "- Keys of chosen query parameters are not part of every plan. Without them (remove cache_key) unknown"
    yield "  parameters make further entries."
    yield "- Soft purge: a purged answer is gone at once."
    yield "- One entry for each of its locations: the first read in each goes to the gateway."
