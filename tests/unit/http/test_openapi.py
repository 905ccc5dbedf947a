"""The description: valid, complete, and true of what is answered."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from openapi_spec_validator import validate

from gateway import errors
from gateway.http.openapi import PROBLEMS, document
from gateway.http.params import KNOWN
from gateway.http.paths import parse
from tests.unit.http.driver import Site
from tests.unit.http.test_headers import KINDS

DOCUMENT = document()


def resolved(node: Any) -> Any:
    """Follow one reference, if it is one."""
    while "$ref" in node:
        found: Any = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def test_the_document_is_valid_openapi() -> None:
    validate(DOCUMENT)


def test_every_path_is_a_route_and_every_route_a_path() -> None:
    described = {
        parse(path.replace("{leaderboard}", "x").replace("{member}", "y").encode()).route: item
        for path, item in DOCUMENT["paths"].items()
        if path.startswith("/v1")
    }
    assert set(described) == set(KNOWN)
    assert set(DOCUMENT["paths"]) - {path for path in DOCUMENT["paths"] if path.startswith("/v1")} == {
        "/",
        "/livez",
        "/readyz",
        "/openapi.json",
    }
    for route, item in described.items():
        parameters = [resolved(parameter) for parameter in item["get"]["parameters"]]
        in_query = {parameter["name"].encode() for parameter in parameters if parameter["in"] == "query"}
        assert in_query == KNOWN[route]
        assert set(item) == {"get", "head", "options"}


def test_every_problem_is_described_where_its_type_leads() -> None:
    tree = [errors.GatewayError]
    for kind in tree:
        tree += kind.__subclasses__()
    # The commands' own errors, which another test may have imported, never reach HTTP.
    codes = {kind.code for kind in tree if kind.__module__ == errors.__name__} - {"settings_error"}
    assert {kind.code for kind in PROBLEMS} == codes
    assert codes <= set(DOCUMENT["components"]["responses"])
    assert set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]) == codes


@pytest.mark.parametrize("kind", [kind for kind, (method, *_) in KINDS.items() if method in ("GET", "HEAD")])
async def test_what_is_answered_is_what_is_described(kind: str) -> None:
    method, target, headers, error = KINDS[kind]
    site = Site()
    site.reads.error = error
    got = await site.get(target, headers, method=method)
    path = target.partition("?")[0].replace("/downloads", "/{leaderboard}").replace("/none", "/{leaderboard}")
    item = DOCUMENT["paths"].get(path.replace("/ann", "/{member}"))
    if item is None:
        assert got.status in (404, 414)
        return
    response = resolved(item[method.lower()]["responses"][str(got.status)])
    for name, header in response["headers"].items():
        values = got.all(name.lower())
        field = resolved(header)
        assert len(values) == 1 or not field["required"]
        for value in values:
            typed: Any = int(value) if field["schema"].get("type") == "integer" else value
            jsonschema.validate(typed, field["schema"])
    if got.status >= 400 and method == "GET":
        schema = {**response["content"]["application/problem+json"]["schema"], "components": DOCUMENT["components"]}
        jsonschema.validate(got.json, schema)
        assert got.json["type"].removeprefix("/openapi.json#/components/responses/") == got.code
