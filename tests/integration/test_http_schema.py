"""The description against the gateway itself: whatever the schema allows, nothing undocumented comes back.

The real read path stands over the fake origin, so that answers have every shape that the schema promises.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS

from gateway.boards import Boards
from gateway.counters import Counters
from gateway.http.access import AccessLog
from gateway.http.app import HttpApp
from gateway.http.openapi import document
from gateway.http.responses import Responses
from gateway.loader import OriginLoader
from gateway.model import Board
from gateway.periods import calendar_for
from gateway.readpath import Limits, Readiness, ReadPath
from gateway.store import Store
from tests.fakes import FakeClock, FakeOrigin

ID = MappingProxyType({"id": re.compile("[0-9]{1,3}")})
BOARDS = (
    Board(name="downloads", key="lb:downloads", profiles="lb:names"),
    Board(name="clan-<id>", key="clan:<id>", order="asc", ties="competition", placeholders=ID),
    Board(name="daily", key="daily:<period>", calendar=calendar_for("daily")),
    Board(name="broken", key="lb:broken"),
)
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
)


def application() -> HttpApp:
    """Build the gateway over an origin that holds a bit of everything."""
    clock = FakeClock()
    origin = FakeOrigin(clock)
    scores: dict[bytes | str, float] = {
        "ann": 30,
        "bob": 30,
        "a/b": 1.5,
        "😀": float("inf"),
        b"\xff": -1,
        "low": float("-inf"),
    }
    origin.put(b"lb:downloads", scores | {f"m{number}": number for number in range(150)})
    origin.profiles[b"lb:names"] = {b"ann": b'{"name":"Ann"}', b"bob": b"Bob"}
    origin.put(b"clan:7", scores)
    origin.put(b"daily:2023-11-14", scores)
    readpath = ReadPath(
        origin=origin,
        loader=OriginLoader(origin, clock),
        store=Store(),
        clock=clock,
        random=random.Random(1).random,
        limits=Limits(),
        bound_s=lambda _board: 26.7,
    )
    return HttpApp(
        boards=Boards(BOARDS),
        reads=readpath,
        readiness=lambda: Readiness(ready=True, redis_up=True, fresh=3, last_known=0, missing=0),
        responses=Responses(BOARDS, ("nginx", "varnish", "fastly", "cloudflare")),
        clock=clock,
        counters=Counters(),
        random_bits=random.Random(2).getrandbits,
        access=AccessLog("off"),
    )


def likely(parameter: dict[str, Any], *values: str) -> None:
    """Make a parameter often one of these values, and anything that it may be otherwise."""
    parameter["schema"] = {"anyOf": [{"type": "string", "enum": list(values)}, parameter["schema"]]}


def described() -> Any:
    """Return the description, with names and ids that exist among the likely ones."""
    description = document()
    parameters = description["components"]["parameters"] = {
        name: dict(parameter) for name, parameter in description["components"]["parameters"].items()
    }
    likely(parameters["leaderboard"], "downloads", "clan-7", "daily", "clan-8")
    likely(parameters["member"], "ann", "a/b", "😀", "nobody", "m7")
    likely(parameters["period"], "current", "previous", "2023-11-14", "2023-11-13")
    schema = schemathesis.openapi.from_dict(description)
    schema.app = Watched(application())
    return schema


class Watched:
    """Remember which statuses were sent."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        self.seen: Counter[int] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def watch(message: Any) -> None:
            if "status" in message:
                self.seen[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, watch)


SCHEMA = described()
CHOSEN: list[Callable[..., Any]] = CHECKS.get_by_names(list(CHECKED))


# Parametrized here: of what schemathesis parametrizes itself, pytest-xdist 3.8 runs one item under pytest 9.2, since
# all of them have one node id there.
OPERATIONS = [one.ok() for one in SCHEMA.exclude(method="HEAD").get_all_operations()]


def try_all(operation: Any) -> Exception | None:
    """Try a few requests that the schema allows; return what was wrong with an answer."""

    @settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy())
    def answers(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=CHOSEN)

    try:
        answers()
    except Exception as error:  # noqa: BLE001 - the operation's own test raises it
        return error
    return None


@pytest.fixture(scope="module")
def found() -> dict[str, Exception | None]:
    """Try every operation, whichever test asks first, so that each can run alone."""
    return {operation.label: try_all(operation) for operation in OPERATIONS}


@pytest.mark.parametrize("operation", [operation.label for operation in OPERATIONS])
def test_every_answer_to_what_the_schema_allows_is_documented(
    found: dict[str, Exception | None], operation: str
) -> None:
    error = found[operation]
    if error is not None:
        raise error


def test_the_examples_reached_answers_of_every_kind_but_outages(found: dict[str, Exception | None]) -> None:
    assert len(found) > 5
    assert set(SCHEMA.app.seen) >= {200, 204, 304, 400, 404}
    assert not [status for status in SCHEMA.app.seen if status >= 500]
