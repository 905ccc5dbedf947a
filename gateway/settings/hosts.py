"""Hosts: which texts are an address, or a name that a name server can be asked for.

Knows: IPv4, IPv6, and what ``getaddrinfo`` can encode.
Must not know: ports, URLs, whether a name is known anywhere.

More is let through than the rules for registered names allow: container networks name hosts ``redis_1``. What is
refused is what ``getaddrinfo`` would raise ``UnicodeError`` for, and what can only be a mistake (``10.0.0.256``).
"""

from __future__ import annotations

import ipaddress
import re
import socket

RULE = "an IP address or a host name (letters, digits, - and _; 1 to 63 bytes between two dots)"

_LONGEST = 253
_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}")


def is_host(text: str) -> bool:
    """Return whether something can be reached, or listened on, under this text; an IPv6 address has no brackets."""
    if ":" in text:
        return is_ipv6(text)
    if set(text) <= set("0123456789."):
        return _is_ipv4(text)
    if len(text) > _LONGEST + 1:
        return False
    try:
        encoded = text.encode("idna").decode()  # as getaddrinfo does
    except UnicodeError:
        return False
    name = encoded.removesuffix(".")
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address; a zone may follow it (``fe80::1%eth0``)."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return text.isascii() and text.isprintable()


def _is_ipv4(text: str) -> bool:
    """Return whether a text is an IPv4 address, in the short forms too that the system takes (``127.1``)."""
    try:
        socket.inet_aton(text)
    except OSError:
        return False
    return True
