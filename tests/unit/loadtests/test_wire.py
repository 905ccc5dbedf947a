"""Of an answer the generator reads its status, length and validator, whatever pieces it arrives in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.wire import Answer, Unreadable, address_of, answer_in, field_of, get, segment

OK = b'HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: W/"a"\r\n\r\nhello'


def test_an_answer_is_read_when_its_head_is_whole() -> None:
    assert answer_in(OK) == Answer(200, len(OK) - 5, len(OK), closing=False)


@given(st.integers(0, len(OK) - 6))
def test_a_part_of_a_head_is_no_answer_yet(size: int) -> None:
    assert answer_in(OK[:size]) is None


def test_a_304_has_no_body_whatever_its_head_says() -> None:
    answer = answer_in(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n")
    assert answer is not None
    assert answer.end == answer.body_at


def test_other_servers_write_field_names_in_capitals() -> None:
    answer = answer_in(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\nConnection: close\r\n\r\n")
    assert answer is not None
    assert (answer.status, answer.end - answer.body_at, answer.closing) == (503, 2, True)


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
)
def test_what_cannot_be_read_is_said_so(data: bytes) -> None:
    with pytest.raises(Unreadable):
        answer_in(data)


def test_a_field_is_found_in_the_head_only() -> None:
    assert field_of(OK, b"ETag") == b'W/"a"'
    assert field_of(OK + b"\r\nx: y", b"x") is None


def test_a_request_is_what_a_client_would_send() -> None:
    data = get("host:80", "/top", {"If-None-Match": 'W/"a"'})
    assert data.startswith(b"GET /top HTTP/1.1\r\nHost: host:80\r\n")
    assert data.endswith(b'If-None-Match: W/"a"\r\n\r\n')


def test_an_id_becomes_one_path_segment() -> None:
    assert segment("a/b %é") == "a%2Fb%20%25%C3%A9"


def test_only_plain_http_is_spoken() -> None:
    assert address_of("http://gateway:8080/") == ("gateway", 8080)
    assert address_of("http://gateway") == ("gateway", 80)
    with pytest.raises(ValueError, match="plain http"):
        address_of("https://gateway")
