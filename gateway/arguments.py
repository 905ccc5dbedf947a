"""Arguments: the forms that values on the command line take, each with the sentence that says what is accepted.

Knows: numbers with bounds, addresses, networks, paths that may stand in an edge's configuration as they are.
Must not know: any command, any edge's language beyond what would end a word in it.

Each form is a ``type`` for argparse: it returns the value, or raises ``ArgumentTypeError`` with what would be right.
"""

from __future__ import annotations

import ipaddress
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

from gateway.settings.forms import Address, address

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_PORT = re.compile(r"[0-9]{1,5}")
_NETWORK = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")
_WORD = re.compile(r"[\w./@:+=,~-]+")
"""What no edge's language ends a word at or gives a meaning to: no space, quote, ``;``, brace, ``$``, ``#``."""


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the form of a whole number within bounds, both included."""

    def parse(text: str) -> int:
        if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    """Return the form of a number within bounds, both included: neither ``nan`` nor ``inf`` is one."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:  # as nan never is
            raise ArgumentTypeError(f"must be a number from {least:g} to {most:g}")
        return value

    return parse


def is_host(text: str) -> bool:
    """Whether this is an IP address (IPv6 without brackets), or a name that a name server can be asked for."""
    if ":" in text or text.replace(".", "").isdigit():
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return False
        return "%" not in text  # a zone, which is a name of this machine's own
    try:
        text.encode("idna")  # as getaddrinfo does: no empty label, none over 63 bytes
    except UnicodeError:
        return False
    return _NAME.fullmatch(text) is not None


def endpoint(text: str) -> str:
    """Take ``HOST:PORT``, an IPv6 host in brackets."""
    if _address(text) is None:
        raise ArgumentTypeError('must be a host and a port such as "127.0.0.1:8080" or "[::1]:8080"')
    return text


def listener(text: str) -> str:
    """Take what nginx may listen on: a port, ``HOST:PORT``, ``*:PORT`` or ``unix:PATH``."""
    port = text.removeprefix("*:")
    is_port = _PORT.fullmatch(port) is not None and 0 < int(port) <= 65_535
    is_socket = text.startswith("unix:/") and _WORD.fullmatch(text) is not None
    if not is_port and not is_socket and _address(text) is None:
        raise ArgumentTypeError('must be a port, or an address such as "127.0.0.1:8000", "[::]:8000" or "unix:/a/path"')
    return text


def listener_or_none(text: str) -> str | None:
    """Take what nginx may listen on; ``none`` is None."""
    return None if text == "none" else listener(text)


def path(text: str) -> str:
    """Take a path that an edge's configuration may hold as it is."""
    if _WORD.fullmatch(text) is None:
        raise ArgumentTypeError("must be a path of letters, digits and ./@:+=,~_- alone")
    return text


def network(text: str) -> str:
    """Take a network such as ``10.0.0.0/8``, one address, or a host's name."""
    if is_host(text):
        return text
    try:
        if _NETWORK.fullmatch(text) is not None:  # ipaddress takes netmasks, too, which no edge does
            return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        pass
    raise ArgumentTypeError('must be a network such as "10.0.0.0/8", or an address')


def proxy(text: str) -> str:
    """Take a network, or ``unix:`` for whatever comes over nginx's Unix sockets."""
    return text if text == "unix:" else network(text)


def _address(text: str) -> Address | None:
    try:
        found = address(text)
    except ValueError:
        return None
    return found if found.port and is_host(found.host) else None
