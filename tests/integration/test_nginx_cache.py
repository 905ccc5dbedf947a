"""The shipped nginx in front of an origin that counts: what it keeps, for how long, and who waits."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from cdn import policy
from cdn.dialects import Headers
from cdn.edges.nginx import LOCK_TIMEOUT_MS, PROBLEM_PATH, configuration
from cdn.edges.site import Site
from cdn.policy import Lives
from gateway.http.answers import CORS
from tests.integration.edges import Origin, Reply, crowd, exchange, get, parsed, pipelined, until
from tests.servers import Nginx, free_port

pytestmark = pytest.mark.xdist_group("nginx")

LIVES = Lives(
    client_ttl_s=1, edge_ttl_s=1, stale_while_revalidate_s=1, stale_if_error_s=4, dialects=("nginx", "varnish")
)
LASTING = replace(LIVES, edge_ttl_s=600, stale_while_revalidate_s=600)
"""For tests that are about no time at all: what is kept once is kept until they end, however slow the machine is."""
POLLED = replace(LIVES, stale_while_revalidate_s=60)
"""A crowd that stands still for longer than the stale window comes back to an edge that has nothing to serve."""
CLIENTS = 200
PAST_STALE_WINDOW_S = LIVES.edge_ttl_s + LIVES.stale_while_revalidate_s + 1.05
"""nginx counts whole seconds: one more than was said may pass."""


class Front(NamedTuple):
    """nginx, its two ports, and the origin behind it."""

    nginx: Nginx
    port: int
    h2_port: int
    origin: Origin

    def log(self, target: str, requests: int) -> list[dict[str, str]]:
        """Return the access log's lines about one target, once all are there: a worker keeps its own for a second.

        So they are in no order.
        """

        def lines() -> list[dict[str, str]]:
            return [line for line in self.logged() if line["target"] == target]

        until(lambda: len(lines()) == requests, "the requests are logged")
        return lines()

    def logged(self) -> list[dict[str, str]]:
        """Return the access log's lines that are there."""
        text = (self.nginx.folder / "access.log").read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture(scope="module")
def served() -> Iterator[Front]:
    port, h2_port = free_port(), free_port()
    with Origin(LIVES) as origin:
        site = Site(
            lives=(LIVES,),
            dialects=LIVES.dialects,
            origins=(f"127.0.0.1:{origin.port}",),
            listen=f"127.0.0.1:{port}",
            listen_h2=f"127.0.0.1:{h2_port}",
            state_dir=".",
            access_log="access.log",
            rate_per_s=20,
            trusted_proxies=("127.0.0.1/32",),
        )
        with Nginx(configuration(site), port=port) as nginx:
            yield Front(nginx, port, h2_port, origin)


@pytest.fixture
def front(served: Front) -> Front:
    """Give the front; what its origin answers is kept for long."""
    served.origin.reset()
    served.origin.lives = LASTING
    return served


@pytest.fixture
def brief(front: Front) -> Front:
    """Give the front; what its origin answers is kept as shortly as its settings say."""
    front.origin.lives = LIVES
    return front


def top(board: str) -> str:
    return f"/v1/leaderboards/{board}/top"


# ---- crowds --------------------------------------------------------------------------------------------------------


def test_a_cold_crowd_is_one_read_if_it_is_back_before_the_lock_s_time_is_over(front: Front) -> None:
    """That time is long here: a read takes longer than the shipped 100 ms where 200 clients fight for a processor."""
    shipped, long = f"proxy_cache_lock_timeout {LOCK_TIMEOUT_MS}ms;", "proxy_cache_lock_timeout 10s;"
    assert shipped in front.nginx.conf
    port, h2_port = free_port(), free_port()
    conf = front.nginx.conf.replace(shipped, long).replace(f":{front.port} ", f":{port} ")
    with Nginx(conf.replace(f":{front.h2_port} ", f":{h2_port} "), port=port):
        front.origin.delay_s = 0.1
        replies = crowd(port, top("cold"), CLIENTS)
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() == 1


def test_a_cold_crowd_does_not_sit_through_half_second_polling(front: Front) -> None:
    """Some who waited for another's fetch had it sooner, in the best of many crowds: a slow machine only adds."""
    front.origin.delay_s = 0.05
    waits: list[float] = []
    for number in range(12):
        board = f"cold-{number}"
        replies = crowd(front.port, top(board), CLIENTS)
        assert {reply.status for reply in replies} == {200}
        hits = [float(line["seconds"]) for line in front.log(top(board), CLIENTS) if line["cache"] == "HIT"]
        waits += [seconds for seconds in hits if seconds >= 0.05]
        if min(waits, default=1.0) < 0.45:
            break
    assert min(waits, default=1.0) < 0.45


def test_while_a_crowd_polls_there_is_one_read_for_each_life(front: Front) -> None:
    front.origin.lives = POLLED
    get(front.port, top("hot"), {"Accept-Encoding": "gzip"})
    began = time.monotonic()
    replies = crowd(front.port, top("hot"), CLIENTS, rounds=7, pause_s=0.5)
    lives = (time.monotonic() - began) / LIVES.edge_ttl_s
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() <= lives + 2
    until(lambda: front.origin.count() >= 2, "the answer is fetched anew")
    hits = sum("nginx; hit" in reply.headers["cache-status"] for reply in replies)
    assert hits / len(replies) > 0.99


def test_in_an_outage_stale_answers_go_on_being_collapsed(front: Front) -> None:
    front.origin.state = "stale"
    front.origin.delay_s = 0.03
    # A cold crowd that waits longer than the lock does, on a busy machine, is another matter.
    get(front.port, top("outage"), {"Accept-Encoding": "gzip"})
    began = time.monotonic()
    replies = crowd(front.port, top("outage"), CLIENTS, rounds=7, pause_s=0.5)
    lives = (time.monotonic() - began) / policy.STALE_LIFE_S
    assert {reply.status for reply in replies} == {200}
    assert front.origin.count() <= lives + 2


def test_the_first_client_s_hanging_up_costs_the_others_nothing(front: Front) -> None:
    front.origin.gate.clear()
    with socket.create_connection(("127.0.0.1", front.port)) as first:
        first.sendall(f"GET {top('left')} HTTP/1.1\r\nHost: edge\r\n\r\n".encode())
        until(lambda: front.origin.count() == 1, "the first read reaches the origin")
    time.sleep(0.1)  # for nginx to see that its client is gone
    front.origin.gate.set()
    front.log(top("left"), 1)  # the request has ended
    reply = get(front.port, top("left"))
    assert reply.status == 200
    assert "nginx; hit" in reply.headers["cache-status"]
    assert front.origin.count() == 1


def test_a_stale_answer_waits_for_no_refresh_and_the_next_on_its_connection_for_no_longer_than_that(
    front: Front,
) -> None:
    """The limit that the configuration explains: the next request on one HTTP/1.1 connection waits for the refresh."""
    expiring, lasting = replace(LIVES, stale_while_revalidate_s=60), replace(LIVES, edge_ttl_s=60)
    front.origin.overrides[top("blocked")] = (200, policy.fresh(expiring))
    front.origin.overrides[top("other")] = (200, policy.fresh(lasting))
    get(front.port, top("blocked"))
    get(front.port, top("other"))
    time.sleep(LIVES.edge_ttl_s + 1.05)
    front.origin.seen.clear()
    front.origin.gate.clear()

    with (
        socket.create_connection(("127.0.0.1", front.port), timeout=30) as connection,
        connection.makefile("rb") as answers,
    ):

        def answer() -> str:
            head = b"".join(iter(answers.readline, b"\r\n"))
            fields = parsed(head.rstrip()).headers
            answers.read(int(fields["content-length"]))
            return fields["cache-status"]

        connection.sendall(f"GET {top('blocked')} HTTP/1.1\r\nHost: edge\r\n\r\n".encode())
        assert "nginx; hit; detail=stale" in answer()
        until(lambda: front.origin.count(top("blocked")) == 1, "the refresh waits at the gate")
        connection.sendall(f"GET {top('other')} HTTP/1.1\r\nHost: edge\r\n\r\n".encode())
        front.origin.gate.set()
        assert "nginx; hit" in answer()
    waited = sorted(bool(line["gateway_seconds"]) for line in front.log(top("blocked"), 2))
    assert waited == [False, True], "only who came first waited"


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 414, 500, 503, 504])
def test_an_error_is_never_kept_and_the_next_good_answer_is_seen_at_once(front: Front, status: int) -> None:
    target = top(f"errs{status}")
    front.origin.overrides[target] = (status, policy.uncached())
    assert get(front.port, target).status == status
    del front.origin.overrides[target]
    assert get(front.port, target).status == 200


def test_an_unknown_leaderboard_s_404_is_kept_for_its_own_life_and_no_longer(front: Front) -> None:
    for board, life_s in (("unknown", 600), ("unknown-yet", 1)):
        front.origin.overrides[top(board)] = (404, [(b"cache-control", b"public, max-age=%d" % life_s)])
        assert get(front.port, top(board)).status == 404
    assert [get(front.port, top("unknown")).status for _ in range(2)] == [404] * 2
    assert sum(seen.target == top("unknown") for seen in front.origin.seen) == 1
    front.origin.overrides.clear()
    until(lambda: get(front.port, top("unknown-yet")).status == 200, "the board is seen")
    assert get(front.port, top("unknown")).status == 404


def test_a_gateway_that_is_away_is_covered_for_as_long_as_stale_if_error_says_and_no_longer(brief: Front) -> None:
    target = top("away")
    brief.origin.lives = replace(LIVES, stale_if_error_s=8)  # time enough to ask once before it is over
    assert get(brief.port, target).status == 200
    time.sleep(PAST_STALE_WINDOW_S)
    brief.origin.stop()
    try:
        reply = get(brief.port, target)
        assert reply.status == 200
        assert "nginx; hit; detail=stale" in reply.headers["cache-status"]
        until(lambda: get(brief.port, target).status == 502, "the error is shown in the end")
        assert get(brief.port, target).headers["cache-control"] == "no-store"
    finally:
        brief.origin.start()
    assert get(brief.port, target).status == 200


def test_a_gateway_that_answers_503_is_covered_until_it_has_something_again(brief: Front) -> None:
    target = top("ill")
    assert get(brief.port, target).status == 200
    time.sleep(PAST_STALE_WINDOW_S)
    brief.origin.state = "error"
    for _ in range(3):
        reply = get(brief.port, target)
        assert reply.status == 200
        assert "nginx; hit; detail=stale" in reply.headers["cache-status"]
    brief.origin.state, brief.origin.version = "fresh", 2
    assert b'"score":2' in get(brief.port, target).body


def test_a_board_that_is_broken_shows_it_at_once_past_the_stale_window(brief: Front) -> None:
    target = top("broken")
    assert get(brief.port, target).status == 200
    time.sleep(PAST_STALE_WINDOW_S)
    brief.origin.overrides[target] = (500, policy.uncached())
    assert get(brief.port, target).status == 500


def test_a_board_that_nobody_asked_for_is_not_served_at_any_age(brief: Front) -> None:
    """Past the stale window the next reader waits for a fresh answer, though nginx still has the old one."""
    get(brief.port, top("forgotten"))
    brief.origin.version = 2
    time.sleep(PAST_STALE_WINDOW_S)
    assert b'"score":2' in get(brief.port, top("forgotten")).body


# ---- what may be kept ----------------------------------------------------------------------------------------------


def test_authorization_and_cookies_neither_prevent_keeping_nor_reach_the_gateway(front: Front) -> None:
    own = {"Authorization": "Bearer x", "Cookie": "sid=1"}
    replies = [get(front.port, top("everyone"), own) for _ in range(2)]
    assert "nginx; hit" in replies[1].headers["cache-status"]
    assert not {"authorization", "cookie"} & set(front.origin.seen[0].headers)
    assert not any("set-cookie" in reply.headers for reply in replies)


def test_what_is_personal_is_never_kept_and_keeps_its_authorization(front: Front) -> None:
    target = "/v1/leaderboards/downloads/members/ann"
    for _ in range(2):
        reply = get(front.port, target, {"Authorization": "Bearer x"})
        assert reply.headers["cache-control"] == "no-store"
    assert front.origin.count() == 2
    assert front.origin.seen[0].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("path", ["/v1/leaderboards", "/v1/leaderboards/downloads", "/openapi.json", "/"])
def test_the_other_public_routes_are_kept_too(front: Front, path: str) -> None:
    assert [get(front.port, path).status for _ in range(3)] == [200] * 3
    assert front.origin.count() <= 1


def test_head_is_answered_from_what_get_stored(front: Front) -> None:
    get(front.port, top("head"))
    reply = get(front.port, top("head"), method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0
    assert front.origin.count() == 1


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "DELETE"])
def test_other_methods_go_to_the_gateway(front: Front, method: str) -> None:
    get(front.port, top("methods"), method=method)
    assert front.origin.seen[-1].method == method


def test_a_kept_answer_is_never_cut_to_a_range(front: Front) -> None:
    get(front.port, top("whole"))
    reply = get(front.port, top("whole"), {"Range": "bytes=0-3"})
    assert reply.status == 200
    assert reply.headers["accept-ranges"] == "none"
    assert len(reply.body) > 4


@pytest.mark.parametrize("condition", ['"other", {etag}', "*", "{strong}", "{etag}"])
def test_a_matching_condition_is_a_304_with_the_fields_of_the_200(front: Front, condition: str) -> None:
    whole = get(front.port, top("conditional"))
    value = condition.format(etag=whole.etag, strong=whole.etag.removeprefix("W/"))
    reply = get(front.port, top("conditional"), {"If-None-Match": value})
    assert (reply.status, reply.body) == (304, b"")
    for name in ("cache-control", "cdn-cache-control", "etag", "vary"):
        assert reply.headers[name] == whole.headers[name]
    assert "content-length" not in reply.headers


def test_clients_do_not_see_the_fields_that_are_for_edges_of_this_kind(front: Front) -> None:
    assert "x-accel-expires" not in get(front.port, top("fields")).headers


# ---- keys ----------------------------------------------------------------------------------------------------------


def entries(front: Front, targets: list[str], headers: dict[str, str] | None = None) -> int:
    """Return how many reads these targets cost, one after the other."""
    for target in targets:
        get(front.port, target, headers)
    return front.origin.count()


def test_unknown_parameters_and_the_default_limit_make_no_second_entry(front: Front) -> None:
    base = top("known")
    targets = [base, f"{base}?", f"{base}?utm=a%20b", f"{base}?limit=100&x=%2F", f"{base}?LIMIT=5", f"{base}?from=1"]
    assert entries(front, targets) == 1


def test_what_changes_the_answer_makes_an_entry_of_its_own(front: Front) -> None:
    base = top("differs")
    assert entries(front, [base, f"{base}?limit=5", f"{base}?limit=6", f"{base}?period=x", f"{base}?limit"]) == 5


def test_a_percent_encoded_name_is_the_parameter_that_the_gateway_reads_too(front: Front) -> None:
    base = top("encoded")
    assert entries(front, [f"{base}?limit=5", f"{base}?%6Cimit=5", f"{base}?l%69mit=5&x=1"]) == 1
    assert entries(front, [base]) == 2


def test_a_parameter_given_twice_is_the_gateway_s_to_refuse(front: Front) -> None:
    base = top("twice")
    assert entries(front, [f"{base}?limit=5", f"{base}?limit=5&limit=6", f"{base}?limit=5&%6Cimit=6"]) == 3


def test_twenty_spellings_of_the_codings_are_three_entries(front: Front) -> None:
    spellings = {
        "br": ["gzip, deflate, br", "br", "deflate,gzip,br", "gzip, br, zstd", "BR"],
        "gzip": [
            "gzip",
            "gzip, deflate",
            "deflate,gzip",
            "gzip;q=1.0,deflate;q=0.6,identity;q=0.3",
            "br;q=0, gzip;q=0.5",
        ],
        "identity": ["", "identity", "*", "deflate", "gzip;q=0", "gzip;q=0, br;q=0.000", "xgzip", "gzipx, brx"],
    }
    for spelled in spellings.values():
        for spelling in spelled:
            get(front.port, top("codings"), {"Accept-Encoding": spelling})
    assert front.origin.count() == 3
    assert [seen.headers["accept-encoding"] for seen in front.origin.seen] == list(spellings)


def test_a_request_that_refuses_the_plain_form_too_is_the_gateway_s_to_answer(front: Front) -> None:
    for _ in range(2):
        get(front.port, top("refuses"), {"Accept-Encoding": "identity;q=0"})
    assert [seen.headers["accept-encoding"] for seen in front.origin.seen] == ["identity;q=0"] * 2


def test_nginx_does_not_pack_what_the_gateway_packed_once(front: Front) -> None:
    packed: Headers = [*policy.fresh(LIVES), (b"content-encoding", b"gzip")]
    front.origin.overrides[top("packed")] = (200, packed)
    for _ in range(2):
        reply = get(front.port, top("packed"), {"Accept-Encoding": "gzip"})
        assert reply.headers["content-encoding"] == "gzip"
        assert reply.body == b'{"code":"as_told"}'


# ---- paths ---------------------------------------------------------------------------------------------------------

IDS = [
    "team%2Fann",
    "team%2fann",
    "%2E%2E",
    "a%2E%2E%2Fb",
    "100%25",
    "%3Fx%3D1",
    "%23",
    "a+b",
    "a%2Bb",
    "a%20b",
    "%7Bx%7D",
    "a:b;c=d,e@f!$&'()*",
    "%F0%9F%8F%86",
    "e%CC%81",
    "%C3%A9",
    "%5Cback",
    "top",
    "%22q%22",
    "%E2%80%AE",
    "~._-",
    *(f"x%2F..%2F..%2F..%2F..%2F..{page}" for page in ("%2Flivez", "/readyz", "%2F_problem%2F404", "/./problem/412")),
    "x%2F..%2F..%2F..%2F..%2F%2E%2E%2Fv1%2Fleaderboards%2Fx%2Ftop",
]


@pytest.mark.parametrize("member", IDS)
def test_a_member_id_reaches_the_gateway_byte_for_byte(front: Front, member: str) -> None:
    members = "/v1/leaderboards/downloads/members"
    for target in (f"{members}/{member}", f"{members}/{member}/neighbors", f"{members}?member={member}"):
        get(front.port, target)
        assert front.origin.seen[-1].target == target


def test_an_id_that_climbs_out_of_its_path_is_the_refusal_that_the_notes_tell_of_and_the_batch_takes_it(
    front: Front,
) -> None:
    member = "..%2F..%2F..%2F..%2F..%2Fetc"
    problem(get(front.port, f"/v1/leaderboards/downloads/members/{member}"), 400, "bad_request")
    batch = f"/v1/leaderboards/downloads/members?member={member}"
    assert get(front.port, batch).status == 200
    assert front.origin.seen[-1].target == batch


@pytest.mark.parametrize("board", ["team%2Fann", "%2E%2E", "a+b", "a%20b", "%F0%9F%8F%86", "x%2Ftop"])
def test_a_leaderboard_s_name_reaches_the_gateway_byte_for_byte_and_is_kept_apart(front: Front, board: str) -> None:
    for target in (top(board), f"/v1/leaderboards/{board}/ranks?from=1&to=2"):
        for _ in range(2):
            get(front.port, target)
        assert [seen.target for seen in front.origin.seen] == [target]
        front.origin.seen.clear()


@pytest.mark.parametrize("path", ["/v1//leaderboards/x/top", "/v1/leaderboards//top", "/v1/leaderboards/x/top/", "//"])
def test_slashes_are_passed_on_as_they_came_and_such_paths_are_not_kept(front: Front, path: str) -> None:
    for _ in range(2):
        get(front.port, path)
    assert [seen.target for seen in front.origin.seen] == [path] * 2


def test_a_path_that_only_looks_like_a_kept_one_once_decoded_is_not_kept(front: Front) -> None:
    target = "/v1/leaderboards/x/members/a%2Ftop"
    for _ in range(2):
        get(front.port, target)
    assert front.origin.count() == 2


def test_a_target_of_16_kib_passes_and_a_longer_one_is_a_414(front: Front) -> None:
    base = "/v1/leaderboards/downloads/members?member="
    assert get(front.port, base + "m" * (16_384 - len(base))).status == 200
    assert len(front.origin.seen[-1].target) == 16_384
    cached = top("long") + "?limit="
    assert get(front.port, cached + "1" * (16_384 - len(cached))).status == 200
    problem(get(front.port, base + "m" * 30_000), 414, "uri_too_long")


@pytest.mark.parametrize(
    "query", ["x=" + "a" * 17_000, "x=\u00e9", "\u00ff", "limit=100&x=" + "\u0080"], ids=["long", "e9", "ff", "80"]
)
def test_a_target_that_the_gateway_cannot_read_is_not_answered_from_what_is_kept(front: Front, query: str) -> None:
    target = top("unreadable")
    get(front.port, target)
    assert "nginx; hit" in get(front.port, target).headers["cache-status"]
    for _ in range(2):
        assert "nginx; fwd=bypass" in get(front.port, f"{target}?{query}").headers["cache-status"]
    assert "nginx; hit" in get(front.port, target).headers["cache-status"]


def test_the_longest_target_that_the_gateway_reads_is_still_answered_from_what_is_kept(front: Front) -> None:
    target = top("longest")
    get(front.port, target)
    longest = f"{target}?x=" + "a" * (16_384 - len(target) - 3)
    assert "nginx; hit" in get(front.port, longest).headers["cache-status"]
    assert "nginx; fwd=bypass" in get(front.port, longest + "a").headers["cache-status"]


# ---- nginx's own answers -------------------------------------------------------------------------------------------

SHARED = {name.decode(): value.decode() for name, value in CORS}


def problem(reply: Reply, status: int, code: str) -> None:
    """Hold an error of nginx's own to the form of the gateway's."""
    assert reply.status == status
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["accept-ranges"] == "none"
    assert reply.headers["x-request-id"]
    assert {name: reply.headers[name] for name in SHARED} == SHARED
    assert reply.headers.get("allow") == ("GET, HEAD, OPTIONS" if status == 405 else None)
    assert reply.headers.get("retry-after") == ("1" if status in {429, 502, 503, 504} else None)
    document = json.loads(reply.body)
    assert (document["status"], document["code"]) == (status, code)


def test_nginx_s_own_errors_are_problem_documents_that_nobody_keeps(front: Front) -> None:
    problem(exchange(front.port, b"GET / HTTP/1.1\r\n\r\n"), 400, "bad_request")
    problem(get(front.port, "/%zz"), 400, "bad_request")
    problem(exchange(front.port, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400, "bad_request")
    problem(get(front.port, "/", method="TRACE"), 405, "method_not_allowed")
    problem(get(front.port, "http://edge/", method="CONNECT"), 405, "method_not_allowed")
    long_header = {f"X-{number}": "v" * 15_000 for number in range(7)}
    problem(get(front.port, "/", long_header), 431, "headers_too_large")
    body = b"POST / HTTP/1.1\r\nHost: edge\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n" + b"x" * 5000
    problem(exchange(front.port, body), 413, "content_too_large")


@pytest.mark.parametrize("target", [f"{PROBLEM_PATH}414", "/%2E/problem/414", "/x/%2e%2e/%2e/problem/414", "/_problem"])
def test_no_client_is_led_to_the_documents_themselves(front: Front, target: str) -> None:
    assert get(front.port, target).headers["content-type"] == "application/json"
    assert front.origin.seen[-1].target == target


def test_a_gateway_that_hangs_is_a_504_and_one_that_is_away_a_502(front: Front) -> None:
    front.origin.gate.clear()
    problem(get(front.port, "/v1/leaderboards/downloads/members/slow"), 504, "gateway_timeout")
    front.origin.gate.set()
    front.origin.stop()
    try:
        problem(get(front.port, "/v1/leaderboards/downloads/members/away"), 502, "bad_gateway")
    finally:
        front.origin.start()


def test_the_gateway_the_log_and_an_error_of_nginx_name_a_request_alike_and_what_is_kept_has_no_name(
    front: Front,
) -> None:
    named = "/v1/leaderboards/downloads/members/named"
    shown = []
    for sent, taken in (("Root=1-abc", "Root=1-abc"), ("not one", "[0-9a-f]{32}"), ("", "[0-9a-f]{32}")):
        get(front.port, named, {"X-Request-Id": sent})
        refused = get(front.port, named, {"X-Request-Id": sent}, method="TRACE")
        shown += [front.origin.last.headers["x-request-id"], refused.headers["x-request-id"]]
        assert all(re.fullmatch(taken, each) for each in shown[-2:])
    for _ in range(2):
        get(front.port, top("nameless"), {"X-Request-Id": "mine"})
    assert sorted(line["id"] for line in front.log(named, 6)) == sorted(shown)
    assert sorted(line["id"] for line in front.log(top("nameless"), 2)) == ["", "mine"]


def test_two_conditions_on_lines_of_their_own_are_the_refusal_that_the_notes_tell_of(front: Front) -> None:
    etag = get(front.port, top("conditions")).etag
    lines = f'If-None-Match: "x"\r\nIf-None-Match: {etag}\r\nConnection: close\r\n\r\n'
    request = f"GET {top('conditions')} HTTP/1.1\r\nHost: edge\r\n{lines}"
    problem(exchange(front.port, request.encode()), 400, "bad_request")


CONDITIONS = [
    ("If-Match", '"other"'),
    ("If-Match", "*"),
    ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"),
    ("If-Unmodified-Since", "never"),
]


@pytest.mark.parametrize(("name", "value"), CONDITIONS)
def test_conditions_that_the_gateway_ignores_are_ignored(front: Front, name: str, value: str) -> None:
    target = top("unconditional")
    get(front.port, target)
    reply = get(front.port, target, {name: value})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert "nginx; fwd=bypass" in reply.headers["cache-status"]
    assert name.lower() not in front.origin.last.headers
    assert "nginx; hit" in get(front.port, target).headers["cache-status"]


@pytest.mark.parametrize("name", ["If-Match", "If-Unmodified-Since"])
def test_such_a_condition_without_a_value_is_a_problem_document_whether_the_answer_is_there_or_not(
    front: Front, name: str
) -> None:
    for _ in range(2):
        problem(get(front.port, top(f"empty-{name}"), {name: ""}), 400, "bad_request")
        get(front.port, top(f"empty-{name}"))


# ---- clients -------------------------------------------------------------------------------------------------------


FLOOD = 400
"""More than the front lets pass at once, 40, and in the seconds that the machine may stand still meanwhile, 20 each."""


def test_one_client_s_flood_is_a_429_that_harms_no_other_and_no_health_check(front: Front) -> None:
    """The front believes this machine's X-Forwarded-For here, so that a test can be many clients."""
    flood = pipelined(front.port, top("flood"), FLOOD, {"X-Forwarded-For": "203.0.113.7"})
    assert {reply.status for reply in flood} == {200, 429}
    refused = next(reply for reply in flood if reply.status == 429)
    problem(refused, 429, "too_many_requests")
    assert get(front.port, top("flood"), {"X-Forwarded-For": "203.0.113.8"}).status == 200
    assert get(front.port, "/livez", {"X-Forwarded-For": "203.0.113.7"}).status == 200
    assert get(front.port, "/readyz", {"X-Forwarded-For": "203.0.113.7"}).status == 200
    own = pipelined(front.port, top("flood"), FLOOD)
    assert {reply.status for reply in own} == {200}, "this machine's own are not counted"


@pytest.mark.parametrize("page", ["livez", "readyz"])
def test_an_id_that_climbs_to_a_health_check_is_counted_and_logged_like_any_other(front: Front, page: str) -> None:
    """nginx's own, resolved path of such a request is the health check's."""
    member = f"/v1/leaderboards/downloads/members/flood%2F..%2F..%2F..%2F..%2F..%2F{page}"
    flood = pipelined(front.port, member, FLOOD, {"X-Forwarded-For": f"203.0.113.{len(page)}0"})
    assert {reply.status for reply in flood} == {200, 429}
    assert {seen.target for seen in front.origin.seen} == {member}
    assert len(front.log(member, FLOOD)) == FLOOD


def test_health_checks_are_not_logged(front: Front) -> None:
    for target in ("/livez", "/readyz?x", top("after")):
        get(front.port, target)
    front.log(top("after"), 1)
    assert not {"/livez", "/readyz?x"} & {seen["target"] for seen in front.logged()}


def test_the_log_says_who_asked_and_what_the_cache_did(front: Front) -> None:
    for _ in range(2):
        get(front.port, top("logged"), {"X-Forwarded-For": "203.0.113.9"})
    lines = front.log(top("logged"), 2)
    assert {line["cache"] for line in lines} == {"MISS", "HIT"}
    assert {line["client"] for line in lines} == {"203.0.113.9"}


def test_http_2_is_spoken_on_its_own_port(front: Front) -> None:
    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    # HPACK (RFC 7541): indexed :method GET, :scheme http, :path /, then a literal :authority.
    headers = bytes([0x82, 0x86, 0x84, 0x41, 4]) + b"edge"
    with socket.create_connection(("127.0.0.1", front.h2_port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, headers))
        data = b""
        while not re.search(rb"\x01[\x00-\xff]\x00\x00\x00\x01\x88", data):  # HEADERS on stream 1: ":status 200"
            chunk = connection.recv(65_536)
            assert chunk, "the connection ended without an answer"
            data += chunk


# ---- the way to the gateway ----------------------------------------------------------------------------------------


def test_what_the_client_claims_about_its_address_is_overwritten() -> None:
    port = free_port()
    with Origin(LIVES) as origin:
        site = Site(
            lives=(LIVES,),
            origins=(f"127.0.0.1:{origin.port}",),
            listen=f"127.0.0.1:{port}",
            listen_h2=None,
            state_dir=".",
            access_log="access.log",
        )
        with Nginx(configuration(site), port=port) as nginx:
            forged = {"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "X-Real-IP": "1.2.3.4"}
            get(port, "/v1/leaderboards/downloads/members/ann", forged)
            seen = origin.seen[-1].headers
            assert seen["x-forwarded-for"] == seen["x-real-ip"] == "127.0.0.1"
            assert "forwarded" not in seen
            path = nginx.folder / "access.log"
            until(lambda: bool(path.read_text()), "the request is logged")
            assert "1.2.3.4" not in path.read_text()


def test_the_shipped_file_is_one_that_nginx_accepts() -> None:
    site = Site(lives=(LIVES,), state_dir=".", listen="127.0.0.1:8000", listen_h2="127.0.0.1:8001")
    nginx = Nginx(configuration(site), port=8000)
    try:
        assert "successful" in nginx.check()
    finally:
        nginx.close()
