"""Schemas: the shapes of parameters, bodies and header fields, in the words of JSON Schema.

Knows: what every answer looks like, the bounds of every parameter.
Must not know: which route uses which.
"""

from __future__ import annotations

from typing import Any

from gateway.http.params import BATCH_LIMIT, NEIGHBORS_DEFAULT, NEIGHBORS_LIMIT, RANK_LIMIT
from gateway.http.paths import LEADERBOARD_LIMIT_BYTES, MEMBER_LIMIT_BYTES
from gateway.model import TOP_LIMIT

Json = dict[str, Any]

NO_CONTROLS = "^[^\\u0000-\\u001f\\u007f]+$"
INSTANT: Json = {"type": "string", "format": "date-time"}
COUNT: Json = {"type": "integer", "minimum": 0}
ORDER: Json = {"type": "string", "enum": ["desc", "asc"]}
TIES: Json = {"type": "string", "enum": ["ordinal", "competition"]}
LABEL: Json = {"type": ["string", "null"], "description": "The period's label; null where there are no periods."}
PERIOD_KINDS = ["daily", "weekly", "monthly", "seasons"]


def ref(kind: str, name: str) -> Json:
    """Return a reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def record(properties: Json, *, optional: tuple[str, ...] = ()) -> Json:
    """Return the schema of an object with these properties and no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_HEAD: Json = {
    "leaderboard": {"type": "string"},
    "period": LABEL,
    "order": ORDER,
    "as_of": {**INSTANT, "description": "When this content was first read; Leaderboard-As-Of says when last."},
    "stale": {"type": "boolean", "description": "No read known to be in step with the primary was possible."},
    "total": {**COUNT, "description": "How many members the leaderboard has."},
}
_ROW: Json = {
    "rank": {"type": "integer", "minimum": 1},
    "member": {"type": "string", "description": "Bytes that are not UTF-8 appear as \\xNN."},
    "score": ref("schemas", "Score"),
    "profile": {"description": "On leaderboards with profiles only: what is stored, or null."},
}
_ENTRIES: Json = {"type": "array", "items": ref("schemas", "Entry"), "maxItems": TOP_LIMIT}
_NEIGHBORS: Json = {"type": "array", "items": ref("schemas", "Entry"), "maxItems": 2 * NEIGHBORS_LIMIT + 1}

SCHEMAS: Json = {
    "Score": {
        "oneOf": [{"type": "number"}, {"type": "string", "enum": ["inf", "-inf"]}],
        "description": "A double; whole numbers without exponent or fraction, infinities as strings.",
    },
    "Entry": record(_ROW, optional=("profile",)),
    "Entries": record({**_HEAD, "entries": _ENTRIES}),
    "Neighbors": record({**_HEAD, "entries": _NEIGHBORS}),
    "Member": record({**_HEAD, **_ROW}, optional=("profile",)),
    "Members": record(
        {
            **_HEAD,
            "entries": _ENTRIES,
            "missing": {"type": "array", "items": {"type": "string"}, "maxItems": BATCH_LIMIT},
        }
    ),
    "Period": record(
        {
            "kind": {"type": "string", "enum": PERIOD_KINDS},
            "label": {"type": "string"},
            "start": INSTANT,
            "end": INSTANT,
            "previous": LABEL,
        }
    ),
    "Leaderboard": record(
        {
            "leaderboard": {"type": "string"},
            "order": ORDER,
            "ties": TIES,
            "as_of": INSTANT,
            "stale": {"type": "boolean"},
            "total": COUNT,
            "staleness_bound_s": {
                "type": "number",
                "minimum": 0,
                "description": "How old what a client sees can be at most, while the gateway and Redis answer.",
            },
            "period": {"oneOf": [ref("schemas", "Period"), {"type": "null"}]},
        }
    ),
    "Leaderboards": record(
        {
            "leaderboards": {
                "type": "array",
                "items": record(
                    {
                        "leaderboard": {"type": "string", "description": "Families by their pattern: clan-<id>."},
                        "order": ORDER,
                        "ties": TIES,
                        "period": {"type": "string", "enum": ["none", *PERIOD_KINDS]},
                    }
                ),
            }
        }
    ),
    "Index": record(
        {
            "name": {"type": "string"},
            "version": {"type": "string"},
            "links": {"type": "object", "additionalProperties": {"type": "string", "format": "uri-reference"}},
        }
    ),
    "Liveness": record({"status": {"const": "ok"}}),
    "Readiness": record(
        {
            "status": {"type": "string", "enum": ["ready", "degraded", "not_ready"]},
            "redis": {"type": "string", "enum": ["up", "down"]},
            "leaderboards": record({"fresh": COUNT, "last_known": COUNT, "missing": COUNT}),
        }
    ),
}


def _query(name: str, schema: Json, description: str, *, required: bool = False) -> Json:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _within(low: int, high: int, default: int | None = None) -> Json:
    bounds: Json = {"type": "integer", "minimum": low, "maximum": high}
    return bounds if default is None else {**bounds, "default": default}


_ID: Json = {"type": "string", "minLength": 1, "maxLength": MEMBER_LIMIT_BYTES, "pattern": NO_CONTROLS}
PARAMETERS: Json = {
    "leaderboard": {
        "name": "leaderboard",
        "in": "path",
        "required": True,
        "description": f"1 to {LEADERBOARD_LIMIT_BYTES} bytes of UTF-8, percent-encoded once.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LEADERBOARD_LIMIT_BYTES, "pattern": NO_CONTROLS},
    },
    "member": {
        "name": "member",
        "in": "path",
        "required": True,
        "description": f"1 to {MEMBER_LIMIT_BYTES} bytes of UTF-8, percent-encoded once; not . or .. alone.",
        "schema": _ID,
    },
    "members": {
        **_query("member", {"type": "array", "items": _ID, "minItems": 1}, "", required=True),
        "description": f"1 to {BATCH_LIMIT} different members, each in a parameter of its own; repeats count once.",
        "style": "form",
        "explode": True,
    },
    "limit": _query("limit", _within(1, TOP_LIMIT, TOP_LIMIT), "How many entries."),
    "from": _query("from", _within(1, RANK_LIMIT), "The first place.", required=True),
    "to": _query(
        "to", _within(1, RANK_LIMIT), f"The last place, at most {TOP_LIMIT - 1} after the first.", required=True
    ),
    "above": _query("above", _within(0, NEIGHBORS_LIMIT, NEIGHBORS_DEFAULT), "How many rows before the member."),
    "below": _query("below", _within(0, NEIGHBORS_LIMIT, NEIGHBORS_DEFAULT), "How many rows after the member."),
    "period": _query(
        "period",
        {"type": "string", "minLength": 1},
        "current (the default), previous, or a label such as 2026-03-19, 2026-W12, 2026-03 or a season's; only where "
        "the leaderboard has periods.",
    ),
    "if_none_match": {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": "Entity tags the client has (RFC 9110 §13.1.2).",
    },
}


def _header(description: str, schema: Json | None = None, *, required: bool = True) -> Json:
    return {"description": description, "required": required, "schema": schema or {"type": "string"}}


HEADERS: Json = {
    "Cache-Control": _header("What clients may keep, and for how long."),
    "CDN-Cache-Control": _header("The same for edges (RFC 9213)."),
    "ETag": _header("Weak, over the whole body but as_of.", {"type": "string", "pattern": '^W/".+"$'}),
    "Vary": _header("Accept-Encoding.", {"const": "Accept-Encoding"}),
    "Cache-Status": _header("How the gateway's own store handled the read (RFC 9211)."),
    "Leaderboard-As-Of": _header("When the data was read, RFC 3339 with milliseconds.", INSTANT),
    "Leaderboard-Stale": _header(
        "Only on stale answers: whole seconds since Leaderboard-As-Of.", COUNT, required=False
    ),
    "X-Request-Id": _header("The caller's id if it was well formed, else a new one."),
    "Retry-After": _header("Whole seconds.", COUNT),
    "Allow": _header("GET, HEAD, OPTIONS."),
    "Access-Control-Allow-Origin": _header("Always *.", {"const": "*"}),
}
