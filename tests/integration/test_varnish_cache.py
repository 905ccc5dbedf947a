"""Varnish as configured by the command in front of an origin that counts: nginx's promises, and purging."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

import pytest

from cdn import policy
from cdn.dialects import Headers
from cdn.edges.site import Site
from cdn.edges.varnish import configuration
from cdn.policy import Lives
from cdn.purge import PurgeTarget, purge
from cdn.tags import leaderboard_tag, tags_of
from gateway.clock import SystemClock
from gateway.http.answers import CORS
from tests.integration.edges import Origin, Reply, crowd, exchange, get, until
from tests.servers import Varnish

pytestmark = pytest.mark.xdist_group("varnish")

LIVES = Lives(client_ttl_s=1, edge_ttl_s=1, stale_while_revalidate_s=2, stale_if_error_s=60, dialects=("varnish",))
LASTING = replace(LIVES, edge_ttl_s=600)
"""For tests that are about no time at all: what is kept once is kept until they end, however slow the machine is."""
POLLED = replace(LIVES, stale_while_revalidate_s=60)
"""A crowd that stands still for longer than the stale window comes back to an edge that has nothing to serve."""
CLIENTS = 200
SECRET = "only-for-tests"
SHARED = {name.decode(): value.decode() for name, value in CORS}
ROOM_FOR_LONG_TARGETS = [
    *("-p", "http_req_size=64k", "-p", "http_req_hdr_len=20k"),
    *("-p", "workspace_client=192k", "-p", "workspace_backend=192k"),
]


class Front(NamedTuple):
    """Varnish, its port, and the origin behind it."""

    port: int
    origin: Origin


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    secret = tmp_path_factory.mktemp("varnish") / "purge-secret"
    secret.write_text(SECRET + "\n")
    with Origin(LIVES) as origin:
        site = Site(
            lives=(LIVES,),
            dialects=LIVES.dialects,
            origins=(f"127.0.0.1:{origin.port}",),
            purge_secret_file=str(secret),
        )
        with Varnish(patient(configuration(site)), options=ROOM_FOR_LONG_TARGETS) as varnish:
            yield Front(varnish.port, origin)


def probes(origin: Origin) -> int:
    """Return how often the origin was asked whether it is ready."""
    return sum(seen.target == "/readyz" for seen in list(origin.seen))


def patient(vcl: str) -> str:
    """Let the probes wait for longer than this process ever stands still: it is the gateway that they look at."""
    assert vcl.count(".timeout = 1s;") == 2
    return vcl.replace(".timeout = 1s;", ".timeout = 30s;")


@pytest.fixture
def front(served: Front) -> Front:
    """Give the front; what its origin answers is kept for long."""
    ill = served.origin.state == "error"
    served.origin.reset()
    served.origin.lives = LASTING
    if ill:  # the probe has to see two good answers of three before the edge believes in the gateway again
        until(lambda: probes(served.origin) >= 3, "the probe is content")
        served.origin.seen.clear()
    return served


@pytest.fixture
def brief(front: Front) -> Front:
    """Give the front; what its origin answers is kept as shortly as its settings say."""
    front.origin.lives = LIVES
    return front


def top(board: str) -> str:
    return f"/v1/leaderboards/{board}/top"


def did(reply: Reply) -> str:
    """Return what Varnish says that it did."""
    return reply.headers["cache-status"].split(", ")[-1]


def problem(reply: Reply, status: int, code: str) -> None:
    """Hold an error of Varnish's own to the form of the gateway's."""
    assert reply.status == status
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["accept-ranges"] == "none"
    assert reply.headers["x-request-id"]
    assert {name: reply.headers[name] for name in SHARED} == SHARED
    document = json.loads(reply.body)
    assert (document["status"], document["code"]) == (status, code)
    assert document["title"]
    assert document["detail"].endswith(".")


def test_a_cold_crowd_is_one_read(front: Front) -> None:
    front.origin.delay_s = 0.1
    replies = crowd(front.port, top("cold"), CLIENTS)
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() == 1


def test_while_a_crowd_polls_there_is_one_read_for_each_life(front: Front) -> None:
    front.origin.lives = POLLED
    get(front.port, top("hot"), {"Accept-Encoding": "gzip"})
    began = time.monotonic()
    replies = crowd(front.port, top("hot"), CLIENTS, rounds=7, pause_s=0.5)
    lives = (time.monotonic() - began) / LIVES.edge_ttl_s
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() <= lives + 2
    until(lambda: front.origin.count() >= 2, "the answer is fetched anew")
    hits = sum(did(reply) == "varnish; hit" for reply in replies)
    assert hits / len(replies) > 0.99


def test_stale_answers_are_kept_and_collapsed_not_turned_to_hit_for_miss(front: Front) -> None:
    """The built-in rules would take the short life for a reason not to keep such answers, for two minutes."""
    front.origin.state, front.origin.delay_s = "stale", 0.03
    began = time.monotonic()
    replies = crowd(front.port, top("outage"), CLIENTS, rounds=8, pause_s=0.5)
    lives = (time.monotonic() - began) / policy.STALE_LIFE_S
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() <= lives + 2
    front.origin.state, front.origin.version = "fresh", 7
    time.sleep(policy.STALE_LIFE_S + 0.1)
    assert b'"score":7' in get(front.port, top("outage")).body


def test_an_answer_with_an_age_is_kept_all_the_same(front: Front) -> None:
    aged: Headers = [*policy.fresh(replace(LIVES, edge_ttl_s=25)), (b"age", b"30")]
    front.origin.overrides[top("aged")] = (200, aged)
    for _ in range(3):
        get(front.port, top("aged"))
    assert front.origin.count() == 1


def test_a_503_lets_a_crowd_through_neither_one_by_one_nor_all_at_once(front: Front) -> None:
    front.origin.overrides[top("nothing")] = (503, [*policy.uncached(), (b"x-request-id", b"of-one-client")])
    front.origin.delay_s = 0.2
    began = time.monotonic()
    replies = crowd(front.port, top("nothing"), CLIENTS)
    seconds = time.monotonic() - began
    assert seconds < 20, "one by one would be 40 s"
    assert {reply.status for reply in replies} == {503}
    assert {reply.headers["cache-control"] for reply in replies} == {"no-store"}
    assert not any("age" in reply.headers for reply in replies)
    ids = {reply.headers["x-request-id"] for reply in replies}
    assert len(ids) == CLIENTS, "everyone has an id of his own, nobody another client's"
    assert "of-one-client" not in ids
    assert front.origin.count() <= seconds + 2, "one for each second that they are held off"
    front.origin.overrides.clear()
    until(lambda: get(front.port, top("nothing")).status == 200, "the good answer is seen")


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_caller_s_error_is_not_kept_and_does_not_switch_keeping_off(front: Front, status: int) -> None:
    target = top(f"errs{status}")
    front.origin.overrides[target] = (status, policy.uncached())
    assert [get(front.port, target).status for _ in range(2)] == [status] * 2
    assert front.origin.count() == 2
    front.origin.overrides.clear()
    assert get(front.port, target).status == 200
    until(lambda: did(get(front.port, target)) == "varnish; hit", "the good answer is kept again")


def test_an_unknown_leaderboard_s_404_is_kept_for_its_own_life_and_no_longer(front: Front) -> None:
    for board, life_s in (("unknown", 600), ("unknown-yet", 1)):
        front.origin.overrides[top(board)] = (404, [(b"cache-control", b"public, max-age=%d" % life_s)])
        assert get(front.port, top(board)).status == 404
    assert [get(front.port, top("unknown")).status for _ in range(2)] == [404] * 2
    assert sum(seen.target == top("unknown") for seen in list(front.origin.seen)) == 1
    front.origin.overrides.clear()
    until(lambda: get(front.port, top("unknown-yet")).status == 200, "the board is seen")
    assert get(front.port, top("unknown")).status == 404


def test_grace_goes_by_the_gateway_s_health(brief: Front) -> None:
    """Ready: past stale-while-revalidate somebody fetches. Not ready: what is stored serves within stale-if-error."""
    for board in ("well", "ill"):
        get(brief.port, top(board))
    brief.origin.version = 2
    time.sleep(LIVES.edge_ttl_s + LIVES.stale_while_revalidate_s + 0.2)
    assert b'"score":2' in get(brief.port, top("well")).body
    brief.origin.state = "error"
    until(lambda: get(brief.port, "/readyz").status == 503, "the gateway is not ready")
    brief.origin.seen.clear()
    until(lambda: probes(brief.origin) >= 3, "the probe has taken in two failures")
    brief.origin.seen.clear()
    for _ in range(20):
        reply = get(brief.port, top("ill"))
        assert (reply.status, did(reply)) == (200, "varnish; hit")
    assert brief.origin.count("/v1") == 0, "the probe finds out when the gateway is back, not the crowd"


def test_a_gateway_that_is_away_is_covered_and_what_was_never_stored_is_a_problem_document(front: Front) -> None:
    front.origin.lives = POLLED
    get(front.port, top("covered"))
    front.origin.stop()
    front.origin.state = "error"
    try:
        time.sleep(LIVES.edge_ttl_s + 0.3)
        assert get(front.port, top("covered")).status == 200
        reply = get(front.port, top("never"))
        problem(reply, 503, "bad_gateway")
        assert reply.headers["retry-after"] == "1"
    finally:
        front.origin.start()


def test_the_first_client_s_hanging_up_costs_the_others_nothing(front: Front) -> None:
    front.origin.gate.clear()
    with socket.create_connection(("127.0.0.1", front.port)) as first:
        first.sendall(f"GET {top('left')} HTTP/1.1\r\nHost: edge\r\n\r\n".encode())
        until(lambda: front.origin.count() == 1, "the first read reaches the origin")
    time.sleep(0.1)  # for Varnish to see that its client is gone
    front.origin.gate.set()
    until(lambda: did(get(front.port, top("left"))) == "varnish; hit", "what was fetched is kept")
    assert front.origin.count() == 1


def test_authorization_and_cookies_neither_prevent_keeping_nor_reach_the_gateway(front: Front) -> None:
    own = {"Authorization": "Bearer x", "Cookie": "sid=1"}
    replies = [get(front.port, top("everyone"), own) for _ in range(2)]
    assert did(replies[1]) == "varnish; hit"
    assert not {"authorization", "cookie"} & set(front.origin.last.headers)


def test_what_is_personal_is_never_kept_and_keeps_its_authorization(front: Front) -> None:
    target = "/v1/leaderboards/downloads/members/ann"
    for _ in range(2):
        assert get(front.port, target, {"Authorization": "Bearer x"}).headers["cache-control"] == "no-store"
    assert front.origin.count() == 2
    assert front.origin.last.headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "DELETE", "PATCH"])
def test_other_methods_go_to_the_gateway(front: Front, method: str) -> None:
    get(front.port, top("methods"), method=method)
    assert front.origin.last.method == method


def test_a_matching_condition_is_a_304_with_the_fields_of_the_200(front: Front) -> None:
    whole = get(front.port, top("conditional"))
    for value in (whole.etag, f'"other", {whole.etag}', f'{whole.etag},"x"', "*", whole.etag.removeprefix("W/")):
        reply = get(front.port, top("conditional"), {"If-None-Match": value})
        assert (reply.status, reply.body) == (304, b"")
        assert reply.headers["cache-control"] == whole.headers["cache-control"]
        assert reply.headers["etag"] == whole.etag
    assert get(front.port, top("conditional"), {"If-None-Match": '"other", W/"v"'}).status == 200


def test_a_304_has_no_body_and_leaves_the_connection_usable(front: Front) -> None:
    etag = get(front.port, top("twice304")).etag
    request = f"GET {top('twice304')} HTTP/1.1\r\nHost: edge\r\nIf-None-Match: {etag}\r\n"
    with socket.create_connection(("127.0.0.1", front.port), timeout=30) as connection:
        connection.sendall(f"{request}\r\n{request}Connection: close\r\n\r\n".encode())
        data = b""
        while chunk := connection.recv(65_536):
            data += chunk
    first, second, rest = data.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 304 Not Modified")
    assert second.startswith(b"HTTP/1.1 304 Not Modified")
    assert rest == b""


def test_a_kept_answer_is_never_cut_to_a_range(front: Front) -> None:
    get(front.port, top("whole"))
    reply = get(front.port, top("whole"), {"Range": "bytes=0-3"})
    assert reply.status == 200
    assert reply.headers["accept-ranges"] == "none"


def test_clients_see_none_of_the_edge_s_own_fields(front: Front) -> None:
    get(front.port, top("fields"))
    names = set(get(front.port, top("fields")).headers)
    assert not {"x-cache-tags", "x-varnish", "x-lb-window", "x-lb-did"} & names


def entries(front: Front, targets: list[str]) -> int:
    """Return how many reads these targets cost, one after the other."""
    for target in targets:
        get(front.port, target)
    return front.origin.count()


def test_unknown_parameters_the_default_limit_and_the_host_make_no_second_entry(front: Front) -> None:
    base = top("known")
    targets = [base, f"{base}?", f"{base}?utm=a%20b", f"{base}?limit=100&x=%2F", f"{base}?LIMIT=5", f"{base}?from=1"]
    assert entries(front, targets) == 1
    assert front.origin.last.target == base


def test_what_changes_the_answer_makes_an_entry_of_its_own_however_it_is_written(front: Front) -> None:
    base = top("differs")
    assert entries(front, [base, f"{base}?limit=5", f"{base}?%6Cimit=5&x", f"{base}?period=x", f"{base}?limit"]) == 4
    assert entries(front, [f"{base}?limit=5&limit=6", f"{base}?limit=5&%6Cimit=6"]) == 6
    for named in ("top", "ranks"):
        front.origin.seen.clear()
        assert entries(front, [f"/v1/leaderboards/{named}{query}" for query in ("", "?limit=5", "?from=1&to=2")]) == 1
    front.origin.seen.clear()
    get(front.port, "/v1/leaderboards/differs/ranks?x=1&to=20&period=a%2Fb&from=11")
    assert front.origin.last.target == "/v1/leaderboards/differs/ranks?from=11&to=20&period=a%2Fb"


@pytest.mark.parametrize(
    "member",
    ["team%2Fann", "%2E%2E", "100%25", "a+b", "a%2Bb", "%F0%9F%8F%86", "e%CC%81", "a:b;c", "x%2F..%2F..%2F..%2Flivez"],
)
def test_a_member_id_reaches_the_gateway_byte_for_byte(front: Front, member: str) -> None:
    members = "/v1/leaderboards/downloads/members"
    for target in (f"{members}/{member}", f"{members}/{member}/neighbors", f"{members}?member={member}"):
        get(front.port, target)
        assert front.origin.last.target == target


def test_a_target_of_16_kib_passes(front: Front) -> None:
    base = "/v1/leaderboards/downloads/members?member="
    assert get(front.port, base + "m" * (16_384 - len(base))).status == 200
    assert len(front.origin.last.target) == 16_384


@pytest.mark.parametrize("query", ["x=" + "a" * 17_000, "x=\u00e9", "limit=100&\u0080"], ids=["long", "e9", "80"])
def test_a_target_that_the_gateway_cannot_read_is_not_answered_from_what_is_kept(front: Front, query: str) -> None:
    target = top("unreadable")
    get(front.port, target)
    assert did(get(front.port, target)) == "varnish; hit"
    for _ in range(2):
        assert did(get(front.port, f"{target}?{query}")) == "varnish; fwd=bypass"
    longest = f"{target}?x=" + "a" * (16_384 - len(target) - 3)
    assert did(get(front.port, longest)) == "varnish; hit"
    assert did(get(front.port, longest + "a")) == "varnish; fwd=bypass"


def test_a_request_without_a_host_or_with_two_is_refused_and_http_1_0_may_go_without(front: Front) -> None:
    get(front.port, top("hosts"))
    problem(
        exchange(front.port, f"GET {top('hosts')} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()), 400, "bad_request"
    )
    two = f"GET {top('hosts')} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
    assert exchange(front.port, two.encode()).status == 400
    assert exchange(front.port, f"GET {top('hosts')} HTTP/1.0\r\n\r\n".encode()).status == 200


def test_conditions_on_several_lines_are_one_list(front: Front) -> None:
    etag = get(front.port, top("conditions")).etag
    lines = f'If-None-Match: "x"\r\nIf-None-Match: {etag}\r\nConnection: close\r\n\r\n'
    assert exchange(front.port, f"GET {top('conditions')} HTTP/1.1\r\nHost: edge\r\n{lines}".encode()).status == 304


def test_an_error_of_varnish_has_the_client_s_id_if_the_gateway_would_take_it(front: Front) -> None:
    assert get(front.port, "/", {"X-Request-Id": "Root=1-abc"}, method="PURGE").headers["x-request-id"] == "Root=1-abc"
    assert get(front.port, "/", {"X-Request-Id": "not one"}, method="PURGE").headers["x-request-id"].isdigit()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("If-Match", '"other"'),
        ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"),
        ("If-Modified-Since", "now"),
    ],
)
def test_conditions_that_the_gateway_ignores_are_ignored(front: Front, name: str, value: str) -> None:
    target = top(f"un-{name}")
    for _ in range(2):
        reply = get(front.port, target, {name: value.replace("now", formatdate(usegmt=True))})
        assert (reply.status, len(reply.body) > 0) == (200, True)


def test_what_the_client_claims_about_its_address_is_overwritten(front: Front) -> None:
    get(front.port, "/v1/leaderboards/downloads/members/x", {"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4"})
    assert front.origin.last.headers["x-forwarded-for"] == "127.0.0.1"
    assert "forwarded" not in front.origin.last.headers


# ---- purging -------------------------------------------------------------------------------------------------------


def target(front: Front, token: str | None = SECRET) -> PurgeTarget:
    return PurgeTarget(edge="varnish", url=f"http://127.0.0.1:{front.port}/", token=token)


async def test_a_purge_by_tag_is_seen_by_the_next_request_and_spares_other_boards(front: Front) -> None:
    long = Lives(edge_ttl_s=600, client_ttl_s=1, dialects=("varnish",))
    for board in ("purged", "purged.2", "spared"):
        front.origin.overrides[top(board)] = (200, policy.fresh(long, tags=tags_of(board, "2026")))
        for suffix in ("", "?limit=5"):
            get(front.port, top(board) + suffix)
    assert front.origin.count() == 6
    [report] = await purge([target(front)], [leaderboard_tag("purged")], sleep=SystemClock.sleep)
    assert report.purged
    for board in ("purged", "purged.2", "spared"):
        for suffix in ("", "?limit=5"):
            get(front.port, top(board) + suffix)
    assert front.origin.count(top("purged")) == 4
    assert front.origin.count() == 8


def test_a_soft_purge_serves_the_old_answer_while_one_request_fetches_the_new_one() -> None:
    long = Lives(edge_ttl_s=600, client_ttl_s=1, stale_while_revalidate_s=60, dialects=("varnish",))
    with Origin(long) as origin:
        site = Site(lives=(long,), dialects=long.dialects, origins=(f"127.0.0.1:{origin.port}",), soft_purge=True)
        with Varnish(patient(configuration(site)), options=ROOM_FOR_LONG_TARGETS) as varnish:
            origin.overrides[top("spared")] = (200, policy.fresh(long, tags=tags_of("spared")))
            for board in ("downloads", "spared"):
                assert "xkey" not in get(varnish.port, top(board)).headers
            origin.version = 2
            origin.gate.clear()
            purger = PurgeTarget(edge="varnish", url=f"http://127.0.0.1:{varnish.port}")
            [report] = asyncio.run(purge([purger], [leaderboard_tag("downloads")], sleep=SystemClock.sleep))
            assert report.purged
            replies = crowd(varnish.port, top("downloads"), 50)
            assert {b'"score":1' in reply.body for reply in replies} == {True}
            origin.gate.set()
            until(lambda: b'"score":2' in get(varnish.port, top("downloads")).body, "the new answer is seen")
            get(varnish.port, top("spared"))
            assert (origin.count(top("downloads")), origin.count(top("spared"))) == (2, 1)


@pytest.mark.parametrize("token", [None, "", "wrong", SECRET + "x"])
async def test_a_purge_without_the_secret_is_refused(front: Front, token: str | None) -> None:
    [report] = await purge([target(front, token)], ["lb"], sleep=SystemClock.sleep)
    assert not report.purged
    assert "403" in report.reason


@pytest.mark.parametrize("tags", [".*", 'a" || obj.status', "", "a  b", "a)|(b"])
def test_a_tag_that_could_mean_something_else_to_the_edge_is_refused(front: Front, tags: str) -> None:
    reply = get(front.port, "/", {"X-Purge-Secret": SECRET, "X-Purge-Tags": tags}, method="PURGE")
    problem(reply, 400, "bad_request")


def test_without_a_readable_secret_nobody_may_purge(front: Front, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for path in (empty, tmp_path / "missing"):
        site = Site(lives=(LIVES,), origins=(f"127.0.0.1:{front.origin.port}",), purge_secret_file=str(path))
        with Varnish(configuration(site)) as varnish:
            for secret in ("", " ", "x"):
                headers = {"X-Purge-Secret": secret, "X-Purge-Tags": "lb"}
                assert get(varnish.port, "/", headers, method="PURGE").status == 403


def test_a_purge_from_elsewhere_is_refused(front: Front) -> None:
    site = Site(lives=(LIVES,), origins=(f"127.0.0.1:{front.origin.port}",), purgers=("192.0.2.0/24",))
    with Varnish(configuration(site)) as varnish:
        problem(get(varnish.port, "/", {"X-Purge-Tags": "lb"}, method="PURGE"), 403, "forbidden")
