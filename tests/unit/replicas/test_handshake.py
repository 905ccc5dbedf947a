"""The introduction of a connection: what is said, what must be answered, what may be refused."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.replicas import handshake
from gateway.replicas.commands import READONLY, Script, pack
from gateway.replicas.connection import Connection
from gateway.replicas.failures import ConnectionLost, ErrorReply
from gateway.replicas.handshake import Greeting
from gateway.replicas.login import Login
from tests.unit.replicas.stubs import StubConnection

INFO = b"role:master\r\nmaster_replid:aaa\r\nmaster_repl_offset:7\r\n"
SERVER = b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\n"


async def greet(login: Login, *answers: Any, scripts: tuple[Script, ...] = ()) -> tuple[Greeting, list[bytes]]:
    stub = StubConnection()
    stub.answers += answers
    greeting = await asyncio.wait_for(
        handshake._greet(cast("Connection", stub), login, scripts, lambda: 5.0, 1.0), timeout=30
    )
    return greeting, stub.requests


async def test_an_account_a_database_and_a_cluster_are_introduced_in_this_order() -> None:
    login = Login(username="u", password="p", database=3, readonly=True)
    script = Script("return 1")
    greeting, requests = await greet(login, *[b"OK"] * 5, INFO, SERVER, scripts=(script,))
    assert requests[:3] == [pack(b"AUTH", b"u", b"p"), pack(b"SELECT", b"3"), READONLY]
    assert requests[3:5] == [pack(b"CLIENT", b"SETNAME", b"leaderboard-gateway"), script.load]
    assert greeting.replication is not None
    assert (greeting.replication.offset, greeting.sent_at, greeting.version) == (7, 5.0, "8.0.1")
    assert greeting.trouble is None


async def test_a_password_without_a_user_is_the_old_form_and_resp3_says_hello() -> None:
    _, requests = await greet(Login(password="p"), b"OK", b"OK", INFO, SERVER)
    assert requests[0] == pack(b"AUTH", b"p")
    _, requests = await greet(Login(password="p", protocol=3), {}, b"OK", INFO, SERVER)
    assert requests[0] == pack(b"HELLO", b"3", b"AUTH", b"default", b"p")
    _, requests = await greet(Login(protocol=3), {}, b"OK", INFO, SERVER)
    assert requests[0] == pack(b"HELLO", b"3")


async def test_a_refused_account_ends_it() -> None:
    with pytest.raises(ErrorReply) as caught:
        await greet(Login(password="p"), ErrorReply("WRONGPASS invalid"), b"OK", INFO, SERVER)
    assert caught.value.code == "WRONGPASS"


async def test_a_connection_lost_meanwhile_ends_it() -> None:
    with pytest.raises(ConnectionLost):
        await greet(Login(), b"OK", ConnectionLost(), SERVER)


async def test_a_name_that_may_not_be_set_is_nothing_and_a_script_that_may_not_be_loaded_is_trouble() -> None:
    greeting, _ = await greet(Login(), ErrorReply("NOPERM setname"), INFO, SERVER)
    assert greeting.trouble is None
    answers = [b"OK", ErrorReply("LOADING Redis is loading"), INFO, SERVER]
    greeting, _ = await greet(Login(), *answers, scripts=(Script("return 1"),))
    assert greeting.trouble == "LOADING"


async def test_a_node_that_may_not_tell_of_itself_is_one_of_which_nothing_is_known() -> None:
    greeting, _ = await greet(Login(), b"OK", ErrorReply("NOPERM info"), ErrorReply("NOPERM info"))
    assert greeting == Greeting(None, 5.0, "", "NOPERM")
    greeting, _ = await greet(Login(), b"OK", b"role:sentinel\r\n", b"")
    assert (greeting.replication, greeting.version) == (None, "")
