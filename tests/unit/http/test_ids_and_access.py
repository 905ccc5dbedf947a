"""Request ids and the access log: whose id stands where, and who is believed about an address."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from gateway import errors
from gateway.http.ids import IdsFilter, current, traceparent
from gateway.model import Query
from gateway.readpath import Reply
from tests.unit.http.driver import Site

TOP = "/v1/leaderboards/downloads/top"
MEMBER = "/v1/leaderboards/downloads/members/ann"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", ["abc-123", "Root=1-67891233-abcdef012345678912345678", "a" * 128, "a/b+c=:@._"])
async def test_a_well_formed_id_is_the_callers(given: str) -> None:
    assert (await Site().get(MEMBER, [("X-Request-Id", given)]))["x-request-id"] == given


@pytest.mark.parametrize("given", [None, "", "a" * 129, "a b", "a\tb", "é", 'a"b', "<script>"])
async def test_no_id_or_a_bad_one_becomes_a_new_one(given: str | None) -> None:
    site = Site()
    headers = [] if given is None else [("X-Request-Id", given)]
    seen = [(await site.get(MEMBER, headers))["x-request-id"] for _ in range(3)]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in seen)
    assert len(set(seen)) == 3


async def test_only_answers_that_nobody_keeps_have_an_id() -> None:
    site = Site()
    for target in (TOP, "/v1/leaderboards", "/openapi.json", "/v1/leaderboards/none/top"):
        assert "x-request-id" not in await site.get(target, [("X-Request-Id", "mine")])
    for target in (MEMBER, "/livez", "/readyz", "/nope", f"{TOP}?limit=x"):
        assert (await site.get(target, [("X-Request-Id", "mine")]))["x-request-id"] == "mine"


async def test_log_records_of_a_request_carry_its_ids(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.reads.error = ZeroDivisionError()
    caplog.handler.addFilter(IdsFilter())

    async def ask(number: int) -> None:
        await site.get(MEMBER, [("X-Request-Id", f"id-{number}"), ("traceparent", TRACE)])

    await asyncio.gather(*(ask(number) for number in range(3)))
    logging.getLogger("elsewhere").warning("outside of any request")
    assert [vars(record)["request_id"] for record in caplog.records] == ["id-0", "id-1", "id-2", None]
    assert [vars(record)["traceparent"] for record in caplog.records] == [TRACE] * 3 + [None]


async def test_a_malformed_traceparent_is_not_logged() -> None:
    site = Site()
    seen = []

    async def read(query: Query) -> Reply:
        scope = current.get()
        assert scope is not None
        seen.append(traceparent(scope))
        raise errors.MemberNotFound

    site.reads.read = read  # type: ignore[method-assign]
    for given in (TRACE, TRACE.upper(), "x", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"{TRACE}\n", "ff" + TRACE[2:]):
        await site.get(MEMBER, [("traceparent", given)])
    assert seen == [TRACE, None, None, None, None, None]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "gateway.access")
    return caplog


async def test_off_writes_nothing(written: pytest.LogCaptureFixture) -> None:
    site = Site()
    for target in (TOP, TOP, MEMBER, "/nope"):
        await site.get(target)
    assert written.records == []


async def test_on_writes_every_request_as_fields(written: pytest.LogCaptureFixture) -> None:
    site = Site(access="on")
    for target in (TOP, TOP, f"{MEMBER}?x=1", "/nope"):
        await site.get(target, [("X-Request-Id", "mine"), ("traceparent", TRACE)])
    fields = [vars(line) for line in written.records]
    assert [each["target"] for each in fields] == [TOP, TOP, f"{MEMBER}?x=1", "/nope"]
    assert [each["status"] for each in fields] == [200, 200, 200, 404]
    assert [each["route"] for each in fields] == ["top", "top", "member", "unmatched"]
    assert [each["outcome"] for each in fields] == ["hit", "hit", "miss", None]
    assert {each["client"] for each in fields} == {"192.0.2.7"}
    assert {each["request_id"] for each in fields} == {"mine"}
    assert {each["traceparent"] for each in fields} == {TRACE}
    assert all(each["duration_ms"] >= 0 and each["method"] == "GET" for each in fields)
    assert written.records[0].getMessage() == f"192.0.2.7 GET {TOP} 200"


async def test_sampled_writes_one_in_a_hundred_and_every_5xx(written: pytest.LogCaptureFixture) -> None:
    site = Site(access="sampled")
    for _ in range(250):
        await site.get(TOP)
    assert len(written.records) == 3
    site.reads.error = errors.OriginUnavailable()
    for _ in range(5):
        await site.get(MEMBER)
    assert [vars(line)["status"] for line in written.records[3:]] == [503] * 5


async def test_d16_the_logged_address_is_the_peers_whatever_anyone_claims(written: pytest.LogCaptureFixture) -> None:
    site = Site(access="on")
    claims = [("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=1.2.3.4"), ("X-Real-IP", "1.2.3.4")]
    for target in (TOP, TOP, MEMBER):
        await site.get(target, claims)
    assert [vars(line)["client"] for line in written.records] == ["192.0.2.7"] * 3
    assert [vars(line)["forwarded"] for line in written.records] == ["1.2.3.4"] * 3
    assert "1.2.3.4" not in written.records[0].getMessage()


async def test_what_a_proxy_claims_is_short_and_ascii_in_the_log(written: pytest.LogCaptureFixture) -> None:
    await Site(access="on").get(TOP, [("X-Real-IP", "é" + "x" * 1000)])
    assert vars(written.records[0])["forwarded"] == "\\xe9" + "x" * 63


async def test_a_request_without_a_known_peer_is_logged_all_the_same(written: pytest.LogCaptureFixture) -> None:
    await Site(access="on").get(TOP, client=None)
    assert vars(written.records[0])["client"] is None
