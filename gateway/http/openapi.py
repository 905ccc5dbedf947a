"""OpenAPI: the description of exactly these routes, their parameters, answers, fields and problems.

Knows: which route takes which parameters and ends in which ways.
Must not know: how anything is answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gateway import __version__
from gateway import errors as tree
from gateway.errors import GatewayError
from gateway.http.problems import MEDIA_TYPE, TYPE_PREFIX
from gateway.http.schemas import HEADERS, PARAMETERS, SCHEMAS, Json, record, ref

PROBLEMS: tuple[type[GatewayError], ...] = (
    tree.InvalidParameter,
    tree.InvalidMember,
    tree.InvalidLeaderboard,
    tree.InvalidPeriod,
    tree.LeaderboardNotFound,
    tree.MemberNotFound,
    tree.PeriodNotFound,
    tree.NotFound,
    tree.MethodNotAllowed,
    tree.UriTooLong,
    tree.WrongType,
    tree.GatewayError,
    tree.OriginUnavailable,
    tree.Overloaded,
    tree.OriginTimeout,
)
"""Every kind of problem that a client can meet."""

_CACHED = ("Cache-Control", "CDN-Cache-Control", "ETag", "Vary", "Access-Control-Allow-Origin")
_LISTED = (*_CACHED, "Cache-Status", "Leaderboard-As-Of")
_SNAPSHOT = (*_LISTED, "Leaderboard-Stale")
_UNCACHED = ("Cache-Control", "Leaderboard-As-Of", "Leaderboard-Stale", "X-Request-Id", "Access-Control-Allow-Origin")
_OWN = ("Cache-Control", "X-Request-Id", "Access-Control-Allow-Origin")

_ALWAYS = (tree.UriTooLong, tree.GatewayError)
_BOARD = (tree.InvalidLeaderboard, tree.InvalidParameter, tree.InvalidPeriod, tree.LeaderboardNotFound)
_READ = (*_BOARD, tree.PeriodNotFound, tree.WrongType, tree.OriginUnavailable, tree.Overloaded)
_MEMBER = (*_READ, tree.InvalidMember, tree.MemberNotFound, tree.OriginTimeout)


def document() -> Json:
    """Return the whole description (OpenAPI 3.1)."""
    paths = _paths()
    responses = {kind.code: _problems([kind]) for kind in PROBLEMS}
    responses |= _shared(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leaderboard gateway",
            "version": __version__,
            "summary": "Leaderboards to read: the top from a shared snapshot, a member's rank straight from a replica.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, "Problem": _PROBLEM},
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "responses": responses,
        },
    }


def _paths() -> Json:
    board = "/v1/leaderboards/{leaderboard}"
    return {
        "/v1/leaderboards": _cached("listLeaderboards", "The configured leaderboards", "Leaderboards", _LISTED),
        board: _snapshot("getLeaderboard", "Order, ties, period, total and staleness bound", "Leaderboard", ["period"]),
        f"{board}/top": _snapshot("getTop", "The first entries", "Entries", ["limit", "period"]),
        f"{board}/ranks": _snapshot("getRanks", "Any range of places", "Entries", ["from", "to", "period"]),
        f"{board}/members": _member("getMembers", "Some members, sorted by rank", "Members", ["members", "period"]),
        f"{board}/members/{{member}}": _member(
            "getMember", "A member's rank and score", "Member", ["member", "period"]
        ),
        f"{board}/members/{{member}}/neighbors": _member(
            "getNeighbors",
            "A member in the middle of its neighbors; cut at the ends, never shifted",
            "Neighbors",
            ["member", "above", "below", "period"],
        ),
        "/livez": _item("getLiveness", "Whether the process answers", [], {"200": _answer("Liveness", _OWN)}, _ALWAYS),
        "/readyz": _item(
            "getReadiness",
            "Whether something servable is known of every leaderboard",
            [],
            {"200": _answer("Readiness", _OWN), "503": _answer("Readiness", (*_OWN, "Retry-After"))},
            _ALWAYS,
        ),
        "/openapi.json": _cached("getDescription", "This document", None, _CACHED),
        "/": _cached("getIndex", "Where to go from here", "Index", _CACHED),
    }


def _shared(paths: Json) -> Json:
    """Put a reference in the place of every response, and return what they refer to: a tenth of the size."""
    names: dict[str, str] = {}
    found: Json = {}
    for operation in (operation for item in paths.values() for operation in item.values()):
        for status, response in operation["responses"].items():
            name = names.setdefault(json.dumps(response), f"{operation['operationId']}-{status}")
            found[name] = response
            operation["responses"][status] = ref("responses", name)
    return found


def _cached(operation: str, summary: str, schema: str | None, fields: Sequence[str]) -> Json:
    answers = {"200": _answer(schema, fields), "304": _answer("", fields, "What the client has is still right.")}
    return _item(operation, summary, ["if_none_match"], answers, _ALWAYS)


def _snapshot(operation: str, summary: str, schema: str, parameters: list[str]) -> Json:
    answers = {"200": _answer(schema, _SNAPSHOT), "304": _answer("", _SNAPSHOT, "What the client has is still right.")}
    return _item(operation, summary, ["leaderboard", *parameters, "if_none_match"], answers, (*_READ, *_ALWAYS))


def _member(operation: str, summary: str, schema: str, parameters: list[str]) -> Json:
    answers = {"200": _answer(schema, _UNCACHED)}
    return _item(operation, summary, ["leaderboard", *parameters], answers, (*_MEMBER, *_ALWAYS))


def _item(
    operation: str, summary: str, parameters: list[str], answers: Json, problems: Iterable[type[GatewayError]]
) -> Json:
    """Return a path with its three methods; HEAD ends as GET does, without the bodies."""
    responses = {**answers, **_by_status(problems)}
    if "503" in answers:
        responses["503"] = answers["503"]
    get = {
        "operationId": operation,
        "summary": summary,
        "parameters": [ref("parameters", name) for name in parameters],
        "responses": responses,
    }
    bare = {
        status: {key: response[key] for key in response if key != "content"} for status, response in responses.items()
    }
    head = {**get, "operationId": f"{operation}Head", "summary": f"{summary}: fields only", "responses": bare}
    return {"get": get, "head": head, "options": _options(operation, parameters)}


def _options(operation: str, parameters: list[str]) -> Json:
    in_path = [ref("parameters", name) for name in parameters if PARAMETERS[name]["in"] == "path"]
    answer = {"description": "Which methods there are, for browsers' preflights too.", "headers": _fields(["Allow"])}
    responses = {"204": answer, **_by_status([*_ALWAYS, tree.NotFound, tree.InvalidParameter])}
    return {"operationId": f"{operation}Options", "parameters": in_path, "responses": responses}


def _answer(schema: str | None, fields: Sequence[str], description: str = "") -> Json:
    """Return an answer; ``schema`` None is any object, an empty one no body."""
    response: Json = {"description": description or "The answer.", "headers": _fields(fields)}
    if schema != "":
        body = {"type": "object"} if schema is None else ref("schemas", schema)
        response["content"] = {"application/json": {"schema": body}}
    return response


def _fields(names: Iterable[str]) -> Json:
    return {name: ref("headers", name) for name in names}


def _by_status(kinds: Iterable[type[GatewayError]]) -> Json:
    found: dict[int, list[type[GatewayError]]] = {}
    for kind in kinds:
        found.setdefault(kind.status, []).append(kind)
    return {str(status): _problems(found[status]) for status in sorted(found)}


def _problems(kinds: list[type[GatewayError]]) -> Json:
    """Return the response for problems that share a status."""
    names = ["Cache-Control", "Access-Control-Allow-Origin"]
    names += {405: ["Allow"], 503: ["Retry-After"]}.get(kinds[0].status, [])
    return {
        "description": " ".join(f"{kind.code}: {kind.default_detail}" for kind in kinds),
        "headers": _fields(names),
        "content": {MEDIA_TYPE.decode(): {"schema": _problem_schema(kinds)}},
    }


def _problem_schema(kinds: Sequence[type[GatewayError]]) -> Json:
    """Return the document of RFC 9457 for one of these problems."""
    codes = [kind.code for kind in kinds]
    return {
        "allOf": [ref("schemas", "Problem")],
        "properties": {"code": {"enum": codes}, "type": {"enum": [TYPE_PREFIX + code for code in codes]}},
    }


_PROBLEM = record(
    {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": [kind.code for kind in PROBLEMS]},
    }
)
