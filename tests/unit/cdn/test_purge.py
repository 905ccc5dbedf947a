"""Purging: what each edge is sent, what is tried again, and that no credential ever shows."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from cdn.purge import Purged, PurgeTarget, purge

SECRET = "s3cr3t-token"
VARNISH = PurgeTarget(edge="varnish", url="http://user:hidden@edge.example:6081/", token=SECRET)
FASTLY = PurgeTarget(edge="fastly", service="SU1Z0", token=SECRET)
CLOUDFLARE = PurgeTarget(edge="cloudflare", zone="023e", token=SECRET)

Handler = Callable[[httpx.Request], httpx.Response]


class Pauses:
    """A sleep that only remembers."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


async def purged(target: PurgeTarget, handler: Handler, *tags: str, pauses: Pauses | None = None) -> Purged:
    """Purge one edge that a handler plays."""
    transport = httpx.MockTransport(handler)
    [report] = await purge([target], tags or ("lb:downloads",), sleep=pauses or Pauses(), transport=transport)
    return report


def noting(seen: list[httpx.Request]) -> Handler:
    """Return an edge that agrees and remembers what it was sent."""

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"status": "ok"})

    return handler


async def test_varnish_gets_the_tags_and_the_secret() -> None:
    seen: list[httpx.Request] = []
    report = await purged(VARNISH, noting(seen), "lb:a", "lb:b")
    assert report == Purged("varnish", "edge.example:6081", purged=True, soft=False, requests=1)
    assert seen[0].method == "PURGE"
    assert seen[0].headers["x-purge-tags"] == "lb:a lb:b"
    assert seen[0].headers["x-purge-secret"] == SECRET


async def test_fastly_is_purged_softly() -> None:
    seen: list[httpx.Request] = []
    report = await purged(FASTLY, noting(seen))
    assert report.purged
    assert report.soft
    assert str(seen[0].url) == "https://api.fastly.com/service/SU1Z0/purge"
    assert seen[0].headers["surrogate-key"] == "lb:downloads"
    assert seen[0].headers["fastly-soft-purge"] == "1"
    assert seen[0].headers["fastly-key"] == SECRET


async def test_cloudflare_gets_thirty_tags_at_a_time() -> None:
    sizes: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {SECRET}"
        assert str(request.url) == "https://api.cloudflare.com/client/v4/zones/023e/purge_cache"
        sizes.append(len(json.loads(request.content)["tags"]))
        return httpx.Response(200, json={"success": True})

    report = await purged(CLOUDFLARE, handler, *(f"lb:{number}" for number in range(70)))
    assert sizes == [30, 30, 10]
    assert report.requests == 3


async def test_cloudflare_s_no_inside_a_200_is_a_refusal() -> None:
    report = await purged(CLOUDFLARE, lambda _: httpx.Response(200, json={"success": False}))
    assert not report.purged
    assert report.requests == 1


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_passing_failure_is_tried_again_with_growing_pauses_and_then_given_up(status: int) -> None:
    pauses = Pauses()
    report = await purged(FASTLY, lambda _: httpx.Response(status), pauses=pauses)
    assert report == Purged("fastly", "SU1Z0", purged=False, soft=True, requests=3, reason=f"answered {status}")
    assert pauses.taken == [0.2, 0.4]


async def test_a_second_attempt_that_succeeds_is_enough() -> None:
    answers = iter([httpx.Response(502), httpx.Response(200)])
    report = await purged(FASTLY, lambda _: next(answers))
    assert report.purged
    assert report.requests == 2


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    report = await purged(FASTLY, lambda _: httpx.Response(status))
    assert (report.purged, report.requests) == (False, 1)
    assert str(status) in report.reason


async def test_an_edge_that_does_not_answer_is_given_up_within_its_attempts() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("nothing came", request=request)

    report = await purged(FASTLY, handler)
    assert report.reason == "no answer within 2 s"
    assert report.requests == 3


async def test_one_edge_that_fails_does_not_keep_the_others_from_being_purged() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "edge.example":
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200)

    transport = httpx.MockTransport(handler)
    reports = await purge([VARNISH, FASTLY, CLOUDFLARE], ["lb"], sleep=Pauses(), transport=transport)
    assert [(report.edge, report.purged) for report in reports] == [
        ("varnish", False),
        ("fastly", True),
        ("cloudflare", True),
    ]


@pytest.mark.parametrize("token", ["s\u00e9cret", "s3cr3t\n", "s3cr3t\x00", "\udcff"])
async def test_a_token_that_cannot_be_sent_is_that_edge_s_report_alone_and_does_not_show(token: str) -> None:
    targets = [
        PurgeTarget(edge="varnish", url="http://edge.example:6081/", token=token),
        PurgeTarget(edge="fastly", service="SU1Z0", token=token),
        PurgeTarget(edge="cloudflare", zone="023e", token=token),
        FASTLY,
    ]
    seen: list[httpx.Request] = []
    reports = await purge(targets, ["lb"], sleep=Pauses(), transport=httpx.MockTransport(noting(seen)))
    assert [(report.purged, report.requests) for report in reports] == [(False, 0)] * 3 + [(True, 1)]
    assert len(seen) == 1
    for report in reports[:3]:
        assert "token" in report.reason
        assert token.strip() not in repr(report)


@pytest.mark.parametrize("url", ["http://\u00e9..x:hidden", "http://user:hidden@[::1", "http://a\x00hidden"])
async def test_an_address_that_is_none_is_that_edge_s_report_alone_and_does_not_show(url: str) -> None:
    broken = PurgeTarget(edge="varnish", url=url)
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    first, second = await purge([broken, FASTLY], ["lb"], sleep=Pauses(), transport=transport)
    assert (first.purged, first.requests, first.reason) == (False, 0, "not asked (InvalidURL)")
    assert "hidden" not in repr(first)
    assert second.purged


async def test_whatever_is_raised_while_one_edge_is_asked_is_its_report_without_the_error_s_text() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "edge.example":
            raise UnicodeError(f"label empty or too long: {SECRET}")
        return httpx.Response(200)

    transport = httpx.MockTransport(handler)
    first, second = await purge([VARNISH, FASTLY], ["lb"], sleep=Pauses(), transport=transport)
    assert (first.purged, first.requests, first.reason) == (False, 1, "not asked (UnicodeError)")
    assert second.purged


@pytest.mark.parametrize("target", [VARNISH, FASTLY, CLOUDFLARE])
async def test_credentials_show_in_no_representation_and_no_report(target: PurgeTarget) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"{request.url} {SECRET}", request=request)

    report = await purged(target, handler)
    for shown in (repr(target), str(target), repr(report), report.reason):
        assert SECRET not in shown
        assert "hidden" not in shown
