"""Listeners: several workers share a port, and nobody else does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from gateway.server.listeners import CannotListen, address_of, bind


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for listener in found:
        listener.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_worker_gets_a_socket_on_the_same_port(opened: list[socket.socket], workers: int) -> None:
    groups = bind("127.0.0.1", 0, workers)
    opened += [listener for group in groups for listener in group]
    assert len(groups) == len(opened) == workers
    (port,) = {address_of(listener).port for listener in opened}
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("second", [1, 2])
def test_a_second_group_is_refused_though_both_would_share(
    opened: list[socket.socket], first: int, second: int
) -> None:
    opened += [listener for group in bind("127.0.0.1", 0, first) for listener in group]
    port = address_of(opened[0]).port
    with pytest.raises(CannotListen, match=rf"^cannot listen on 127.0.0.1:{port}: the port is in use$"):
        bind("127.0.0.1", port, second)


def test_a_name_that_means_several_addresses_is_listened_on_at_each(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        assert (host, port) == ("here", 0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.1", "127.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    groups = bind("here", 0, 2)
    opened += [listener for group in groups for listener in group]
    addresses = [[address_of(listener) for listener in group] for group in groups]
    assert addresses[0] == addresses[1]
    assert [address.host for address in addresses[0]] == ["127.0.0.1", "127.0.0.2"]
    assert addresses[0][0].port == addresses[0][1].port


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("192.0.2.1", "Cannot assign requested address"),
        ("no.such.host.invalid", "no.such.host.invalid"),
        ("a..example", "cannot listen on a..example:8080: the host is not a name or an address"),
        ("a" * 64, "the host is not a name or an address"),
    ],
)
def test_an_address_that_is_not_ours_is_one_line(host: str, says: str) -> None:
    with pytest.raises(CannotListen) as caught:
        bind(host, 8080, 2)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_was_bound_before_a_failure_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    bound = socket.socket.bind

    def bind_once(self: socket.socket, address: tuple[str, int]) -> None:
        made.append(self)
        if len(made) > 1:
            raise PermissionError(13, "Permission denied")
        bound(self, address)

    monkeypatch.setattr(socket.socket, "bind", bind_once)
    with pytest.raises(CannotListen, match="Permission denied"):
        bind("127.0.0.1", 0, 2)
    assert [listener.fileno() for listener in made] == [-1, -1]
    with contextlib.suppress(OSError):
        made[0].close()
