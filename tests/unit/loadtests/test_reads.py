"""The load asks what a game client would, in exact proportions, and knows a right answer when it sees one."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from random import Random

from loadtests import reads
from loadtests.driver import Request
from loadtests.reads import KnownMember, Mix, member_request
from loadtests.wire import Answer

MEMBERS = {"a": [KnownMember("ann", 3), KnownMember("b/b")], "b": [KnownMember("cyd")]}
WEIGHTS = {reads.TOP: 45, reads.TOP_CONDITIONAL: 45, reads.RANK: 7, reads.NEIGHBORS: 3}


def mix(**more: bool) -> Mix:
    return Mix("http://gateway:80", list(MEMBERS), MEMBERS, WEIGHTS, Random(1), **more)


def test_the_kinds_come_in_the_proportions_asked_for() -> None:
    kinds = Counter(request.route for request in islice(mix(), 2000))
    assert kinds == {reads.TOP: 900, reads.TOP_CONDITIONAL: 900, reads.RANK: 140, reads.NEIGHBORS: 60}


def test_g4_a_request_is_counted_by_its_route_and_never_by_its_member() -> None:
    members = {"a": [KnownMember(f"m-{number}") for number in range(10_000)]}
    many = Mix("http://gateway", ["a"], members, WEIGHTS, Random(1))
    assert {request.route for request in islice(many, 5000)} == set(reads.ROUTES)


def test_a_rank_must_name_the_member_and_its_rank_where_that_is_known() -> None:
    request = member_request(reads.RANK, "h", "a", KnownMember("ann", 3))
    assert request.data.startswith(b"GET /v1/leaderboards/a/members/ann HTTP/1.1\r\n")
    assert request.expect == b'"member":"ann","rank":3,'
    assert member_request(reads.RANK, "h", "a", KnownMember("b/b")).expect == b'"member":"b/b"'


def test_neighbors_must_hold_the_members_own_row() -> None:
    request = member_request(reads.NEIGHBORS, "h", "a", KnownMember("b/b", 4))
    assert b"/members/b%2Fb/neighbors " in request.data
    assert request.expect == b'"rank":4,"member":"b/b"'
    row = json.dumps({"rank": 4, "member": "b/b", "score": 1}, separators=(",", ":")).encode()
    assert request.expect in row


def test_against_a_constant_endpoint_no_body_is_expected_of_members() -> None:
    assert {r.expect for r in islice(mix(check=False), 2000) if r.route == reads.RANK} == {b""}


def test_an_edge_asks_for_its_boards_one_after_the_other() -> None:
    edge = Mix("http://gateway", ["a", "b"], {"a": [], "b": []}, {reads.TOP: 1}, Random(1), in_turn=True)
    assert [request.board for request in islice(edge, 4)] == ["a", "b", "a", "b"]


def conditional(source: Mix, board: str) -> Request:
    return next(r for r in source if r.route == reads.TOP_CONDITIONAL and r.board == board)


def test_conditional_requests_carry_the_newest_validator_of_their_board() -> None:
    source = mix()
    top = next(r for r in source if r.route == reads.TOP and r.board == "a")
    head = b'HTTP/1.1 200 OK\r\netag: W/"new"\r\ncontent-length: 0\r\n\r\n'
    source.learn(top, Answer(200, len(head), len(head), closing=False), bytearray(head))
    assert b'If-None-Match: W/"new"\r\n' in conditional(source, "a").data
    assert b'If-None-Match: W/"none"\r\n' in conditional(source, "b").data


def test_an_error_teaches_no_validator() -> None:
    source = mix()
    head = b'HTTP/1.1 503 Busy\r\netag: W/"new"\r\ncontent-length: 0\r\n\r\n'
    source.learn(conditional(source, "a"), Answer(503, len(head), len(head), closing=False), bytearray(head))
    assert b'If-None-Match: W/"none"\r\n' in conditional(source, "a").data
