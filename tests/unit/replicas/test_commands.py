"""Requests: the bytes are what hiredis would pack, and what is kept for keys is bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import cast

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas import commands
from gateway.replicas.commands import Command, Plain, Script, pack


def packed(*words: bytes) -> bytes:
    return bytes(cast("Callable[[tuple[bytes, ...]], bytes]", hiredis.pack_command)(words))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_a_packed_request_is_an_array_of_bulk_strings(words: list[bytes]) -> None:
    assert pack(*words) == packed(*words)


@given(st.binary(max_size=20), st.lists(st.binary(max_size=20), max_size=5))
def test_a_script_call_is_evalsha_with_one_key_the_first_time_and_every_later_one(
    key: bytes, args: list[bytes]
) -> None:
    script = Script("return 1")
    digest = hashlib.sha1(b"return 1").hexdigest().encode()
    expected = packed(b"EVALSHA", digest, b"1", key, *args)
    for _ in range(2):
        assert Command(script, key, tuple(args)).packed() == expected


def test_a_plain_command_has_its_key_behind_its_name() -> None:
    assert Plain(b"HMGET", b"k", (b"a", b"b")).packed() == pack(b"HMGET", b"k", b"a", b"b")


def test_keys_that_clients_name_cannot_fill_the_memory() -> None:
    script = Script("return 1")
    for number in range(3 * commands._KEPT_PREFIXES):
        script.request(b"lb:%d" % number, (b"m",))
    assert len(script._prefixes[1]) <= commands._KEPT_PREFIXES
