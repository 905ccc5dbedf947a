"""Listeners: the sockets that the parent binds once and keeps, so that a worker which is replaced inherits its own.

Knows: addresses, ports, SO_REUSEPORT.
Must not know: who accepts on them.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack

from gateway.settings.forms import Address

BACKLOG = 2048
"""Connections that wait while every worker is busy, or while a worker is being replaced."""


class CannotListen(Exception):
    """An address cannot be listened on; the message is one line for the operator."""


def bind(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    """Listen on every address that ``host`` stands for; return a list of sockets for each worker.

    Raise ``CannotListen`` if the port is taken, by whatever process. Several workers share the port with
    SO_REUSEPORT, which would also let a second gateway of the same user in without a word. So:

    1. The first socket binds without the option. That fails while anything else listens there.
    2. Only then is the option set, on a socket that is bound already, and the other sockets join.
    """
    per_worker: list[list[socket.socket]] = [[] for _ in range(workers)]
    with ExitStack() as undo:
        for family, address in _addresses(host, port):
            chosen = per_worker[0][0].getsockname()[1] if per_worker[0] else port
            for index, listener in enumerate(_group(family, (address, chosen), workers, undo)):
                per_worker[index].append(listener)
        undo.pop_all()
    return per_worker


def address_of(listener: socket.socket) -> Address:
    """Return what a socket is bound to; the port is the real one where 0 was asked for."""
    return Address(*listener.getsockname()[:2])


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {Address(host, port)}: {error.strerror}") from error
    except ValueError as error:  # UnicodeError: a name that no name server can be asked for, as ``a..example``
        raise CannotListen(f"cannot listen on {Address(host, port)}: the host is not a name or an address") from error
    return list(dict.fromkeys((int(family), str(sockaddr[0])) for family, _, _, _, sockaddr in found))


def _group(family: int, address: tuple[str, int], workers: int, undo: ExitStack) -> list[socket.socket]:
    try:
        first = undo.enter_context(_bound(family, address, shared=False))
        if workers > 1:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound = (address[0], first.getsockname()[1])
        group = [first, *(undo.enter_context(_bound(family, bound, shared=True)) for _ in range(workers - 1))]
        for listener in group:
            listener.listen(BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen on {Address(*address)}: {_reason(error)}") from error
    return group


def _bound(family: int, address: tuple[str, int], *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else a restart waits for old connections
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    return os.strerror(error.errno) if error.errno else str(error)
