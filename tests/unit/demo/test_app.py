"""The demo's page and switches around the gateway's application, without sockets."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gateway.demo import app as app_module
from gateway.demo.app import LAST_POLLS, DemoApp, parse_order
from gateway.demo.control import Order, State
from tests.fakes import FakeClock

STATE = State(redis="running", writer=True, written=7, crowd=100)
HERE = {"content-type": "application/json"}


class Inner:
    """Stands for the gateway: answers everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def refuse(self, *_: object) -> str:
        return "refused"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await PlainTextResponse("inner")(scope, receive, send)


async def nothing(*_: Any) -> Any:
    """Do nothing, as application, as receive and as send."""


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Replace the socket to the demo's process by a list of the orders sent over it."""
    sent: list[Order] = []

    async def send(path: Path, order: Order) -> State:
        if path.name == "nobody":
            raise ConnectionRefusedError
        sent.append(order)
        return STATE

    monkeypatch.setattr(app_module, "send", send)
    return sent


class Demo:
    def __init__(self, control: str = "control", client: str = "127.0.0.1") -> None:
        self.inner, self.reads = Inner(), 0
        self.app = DemoApp(self.inner, redis_reads=lambda: self.reads, control=Path(control), clock=FakeClock(wall=5))
        transport = httpx.ASGITransport(self.app, client=(client, 1234))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


@pytest.fixture
async def demo(orders: list[Order]) -> AsyncIterator[Demo]:
    demo = Demo()
    async with demo.http:
        yield demo


async def test_everything_outside_demo_reaches_the_gateway_untouched(demo: Demo) -> None:
    for path in ("/", "/demonstration", "/v1/leaderboards/downloads/top", "/v1/leaderboards/x/members/demo"):
        assert (await demo.http.get(path)).text == "inner"
    assert demo.inner.paths == [
        "/",
        "/demonstration",
        "/v1/leaderboards/downloads/top",
        "/v1/leaderboards/x/members/demo",
    ]


async def test_other_kinds_of_scope_reach_the_gateway_and_so_does_what_the_parser_refuses(demo: Demo) -> None:
    demo.inner.paths.clear()
    with pytest.raises(KeyError, match="path"):  # the stand-in looks for one, so it was called
        await demo.app({"type": "lifespan"}, nothing, nothing)
    assert demo.app.refuse() == "refused"


async def test_the_page_may_run_its_own_script_and_style_and_reach_nothing_else(demo: Demo) -> None:
    answer = await demo.http.get("/demo")
    policy = answer.headers["content-security-policy"]
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


async def test_the_page_names_no_other_host_and_puts_no_data_into_markup(demo: Demo) -> None:
    page = (await demo.http.get("/demo")).text
    assert set(re.findall(r"https?://[\w.]+", page)) == {"http://www.w3.org"}, "the icon's namespace, never fetched"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\bon\w+=|style=\"", page)


async def test_stats_say_what_the_last_polls_cost(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.app, "_inner", nothing)
    for number in range(LAST_POLLS + 500):
        demo.reads = number // 100
        await demo.app({"type": "http", "path": "/v1/leaderboards/downloads/top"}, nothing, nothing)
    demo.reads += 1
    stats = (await demo.http.get("/demo/stats")).json()
    assert stats["polls"] == 1500
    assert stats["last"] == {"polls": 1000, "redis_reads": 15 - 5}
    assert (stats["redis_reads"], stats["now_ms"], stats["controls"]) == (15, 5000, True)
    assert stats["state"] == STATE


async def test_stats_before_any_poll_and_without_the_demo_process_still_answer(orders: list[Order]) -> None:
    stats = (await Demo(control="nobody").http.get("/demo/stats")).json()
    assert stats["last"] == {"polls": 0, "redis_reads": 0}
    assert stats["state"] is None


@pytest.mark.parametrize("order", [{"redis": "stop"}, {"redis": "start"}, {"writer": False}, {"crowd": 500}])
async def test_an_order_reaches_the_demo_and_is_answered_with_its_state(
    demo: Demo, orders: list[Order], order: Order
) -> None:
    answer = await demo.http.post("/demo/control", json=order)
    assert (answer.status_code, answer.json()) == (200, {"state": STATE})
    assert orders == [order]


async def test_an_order_that_nobody_takes_is_503(orders: list[Order]) -> None:
    assert (await Demo(control="nobody").http.post("/demo/control", json={"writer": True})).status_code == 503


@pytest.mark.parametrize(
    "body",
    [
        *("", "x", "[]", "{}", "1", "\xff"),
        *('{"redis":"kill"}', '{"redis":["stop"]}', '{"writer":1}', '{"writer":null}'),
        *('{"crowd":true}', '{"crowd":-1}', '{"crowd":1001}', '{"crowd":1.5}'),
        *('{"other":1}', '{"writer":true,"other":1}'),
    ],
)
async def test_what_is_no_order_is_refused(demo: Demo, orders: list[Order], body: str) -> None:
    answer = await demo.http.post("/demo/control", content=body.encode("latin-1"), headers=HERE)
    assert answer.status_code == 400
    assert not orders


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("192.0.2.1", {}),
        ("127.0.0.1", {"host": "demo.example"}),
        ("127.0.0.1", {"origin": "http://evil.example"}),
        ("127.0.0.1", {"origin": "null"}),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.1"}),
        ("127.0.0.1", {"content-type": "text/plain"}),
    ],
)
async def test_the_switches_are_for_pages_of_this_machine_only(
    orders: list[Order], client: str, headers: dict[str, str]
) -> None:
    http = Demo(client=client).http
    answer = await http.post("/demo/control", content=b'{"redis":"stop"}', headers=HERE | headers)
    assert answer.status_code == 403
    assert not orders


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
async def test_every_name_of_this_machine_may_use_the_switches(orders: list[Order], host: str) -> None:
    headers = HERE | {"host": host, "origin": f"http://{host}"}
    answer = await Demo(client="::1").http.post("/demo/control", content=b'{"writer":true}', headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/demo"), ("GET", "/demo/control"), ("GET", "/demo/"), ("PUT", "/demo/stats")]
)
async def test_nothing_else_is_under_demo(demo: Demo, method: str, path: str) -> None:
    assert (await demo.http.request(method, path)).status_code == 404
    assert not demo.inner.paths


def test_an_order_may_hold_several_switches() -> None:
    assert parse_order(json.dumps({"writer": True, "crowd": 0}).encode()) == {"writer": True, "crowd": 0}
