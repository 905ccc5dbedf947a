"""Handshake: what every new connection says before it carries reads.

Knows: AUTH and HELLO, CLIENT SETNAME, SELECT, READONLY, SCRIPT LOAD, INFO; TLS.
Must not know: retries, choice, what the scripts do.

The handshake ends with ``INFO replication``, read before the connection carries anything: a node that was restarted
between two looks of the health monitor (empty, perhaps) comes back through here, and is judged anew first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from gateway.replicas.commands import INFO_REPLICATION, INFO_SERVER, READONLY, Script, pack
from gateway.replicas.connection import Answer, Connection
from gateway.replicas.failures import AttemptError, ErrorReply
from gateway.replicas.health import Replication, fields_of, replication_of
from gateway.replicas.login import Address, Login

CLIENT_NAME = b"leaderboard-gateway"


class Greeting(NamedTuple):
    """What a node said when a connection to it was opened. ``trouble`` is the code of a refusal worth knowing."""

    replication: Replication | None
    sent_at: float
    version: str
    trouble: str | None


class Connect(Protocol):
    """How a connection is opened: ``open_connection``, or a test's own."""

    async def __call__(
        self,
        make: Callable[[], Connection],
        address: Address,
        login: Login,
        scripts: Sequence[Script],
        monotonic: Callable[[], float],
        *,
        within_s: float,
    ) -> tuple[Connection, Greeting]:
        """See ``open_connection``."""
        ...


async def open_connection(
    make: Callable[[], Connection],
    address: Address,
    login: Login,
    scripts: Sequence[Script],
    monotonic: Callable[[], float],
    *,
    within_s: float,
) -> tuple[Connection, Greeting]:
    """Connect and introduce ourselves. Raises OSError, TimeoutError or AttemptError; nothing is left open then."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(within_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                make, address.host, address.port, ssl=login.tls, server_hostname=login.tls_name if login.tls else None
            )
            return connection, await _greet(connection, login, scripts, monotonic, within_s)
    except BaseException:
        if connection is not None:
            connection.abort()
        raise


async def _greet(
    connection: Connection,
    login: Login,
    scripts: Sequence[Script],
    monotonic: Callable[[], float],
    within_s: float,
) -> Greeting:
    now = monotonic()

    def say(request: bytes) -> Answer:
        return connection.send(request, now, now + within_s)

    required = [say(request) for request in _introduction(login)]
    # Names and scripts are welcome, not required: an account may not be allowed the first, a node that loads its
    # data refuses the second, and reads load a script themselves where NOSCRIPT says so.
    optional = [say(pack(b"CLIENT", b"SETNAME", CLIENT_NAME)), *(say(script.load) for script in scripts)]
    info, server = say(INFO_REPLICATION), say(INFO_SERVER)
    answers = await asyncio.gather(*required, *optional, info, server, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, ErrorReply):
            raise answer
    for answer in answers[: len(required)]:
        if isinstance(answer, ErrorReply):
            raise answer
    refusals = [answer.code for answer in answers[len(required) + 1 :] if isinstance(answer, ErrorReply)]
    return Greeting(_replication(answers[-2]), now, _version(answers[-1]), refusals[0] if refusals else None)


def _introduction(login: Login) -> list[bytes]:
    account = [] if login.password is None else [(login.username or "default").encode(), login.password.encode()]
    words: list[bytes] = []
    if login.protocol == 3:
        words.append(pack(b"HELLO", b"3", *([b"AUTH", *account] if account else [])))
    elif account:
        # Without a user name the one-argument form: it works before ACLs and on services that only know it.
        words.append(pack(b"AUTH", *(account if login.username else account[1:])))
    if login.database:
        words.append(pack(b"SELECT", b"%d" % login.database))
    if login.readonly:
        words.append(READONLY)
    return words


def _replication(answer: object) -> Replication | None:
    try:
        return replication_of(answer) if isinstance(answer, bytes) else None
    except ValueError:
        return None


def _version(answer: object) -> str:
    if not isinstance(answer, bytes):
        return ""
    field = fields_of(answer)
    return field.get("valkey_version") or field.get("redis_version", "")


def reason_of(error: BaseException) -> str:
    """Return why a connection could not be opened, in words without a secret, for one log line."""
    if isinstance(error, ErrorReply):
        return error.code
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, AttemptError):
        return "closed by the node"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return type(error).__name__
