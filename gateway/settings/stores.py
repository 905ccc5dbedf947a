"""Stores: what is wrong with the URL of a last known store, without a word of what it holds.

Knows: the three forms, and what the libraries behind them could not use.
Must not know: the libraries, or whether anything is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from gateway.settings.hosts import RULE, is_host, is_ipv6

FORM = '"none", "file:///a/folder", "postgresql://host/database" or "s3://bucket/prefix"'

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_HOST_AND_PORT = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>.*))?")
_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "primary", "standby", "read-write", "read-only", "prefer-standby"),
}

_POSTGRESQL = "postgresql://user:password@host:port/database"
_ESCAPED = "a user and a password hold %40 for @, %3A for :, %2F for /, %3F for ? and %23 for #"


def fault_of(text: str) -> str | None:
    """Say what would be right; None if all is well. The URL may hold a password: nothing of it is in the answer."""
    if text == "none":
        return None
    try:
        url = urlsplit(text)
    except ValueError:  # brackets that enclose no address
        return f"must be {FORM}"
    faults = _FAULTS.get(url.scheme)
    if faults is None:
        return f"must be {FORM}"
    if _CONTROL.search(text) or _CONTROL.search(unquote(text)):
        return "must not hold control characters"
    return next(faults(url), None)


def _folder(url: SplitResult) -> Iterator[str]:
    if url.netloc or not url.path.startswith("/") or not url.path.strip("/"):
        yield 'must name a folder by its absolute path, after three slashes: "file:///a/folder"'
    if url.query or url.fragment:
        yield "must hold %3F for ? and %23 for # in the name of a folder"


def _bucket(url: SplitResult) -> Iterator[str]:
    if "@" in url.netloc:
        yield 'must be "s3://bucket/prefix" without credentials: those come from the AWS_… variables'
    if _BUCKET.fullmatch(url.netloc) is None:
        yield 'must be "s3://bucket/prefix", the bucket of letters, digits, dots, - and _'
    if url.query or url.fragment:
        yield "must hold %3F for ? and %23 for # in a prefix"
    prefix = unquote(url.path).strip("/")
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        yield 'must be "s3://bucket/prefix", no part of the prefix being empty, "." or ".."'


def _database(url: SplitResult) -> Iterator[str]:
    _, _, after_first = url.netloc.partition("@")
    if "@" in after_first or url.fragment:
        yield f"must be {_POSTGRESQL}: {_ESCAPED}"
    try:
        query = parse_qs(url.query, strict_parsing=True) if url.query else {}
    except ValueError:
        yield f"must be {_POSTGRESQL}, then perhaps ? and name=value, with & between two"
        return
    hosts = url.netloc.rpartition("@")[2]
    if not hosts and not url.path.strip("/") and not query:
        yield f"must name a host or a database: {_POSTGRESQL}"
    for host in hosts.split(",") if hosts else ():
        yield from _host(host)
    if not all(_is_port(port) for value in query.get("port", ()) for port in value.split(",")):
        yield "must have a port from 1 to 65535"
    for name, choices in _CHOICES.items():
        if not set(choices).issuperset(query.get(name, ())):
            yield f"must have one of these as {name}: {', '.join(choices)}"


def _host(text: str) -> Iterator[str]:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        yield f"must be {_POSTGRESQL}, an IPv6 host in brackets"
        return
    if match["port"] and not _is_port(match["port"]):  # which may well be a part of a password
        yield f"must be {_POSTGRESQL}, the port from 1 to 65535; {_ESCAPED}"
    host = unquote(match["host"] or "")
    is_socket = host.startswith("/")
    if not (is_ipv6(match["six"]) if match["six"] is not None else is_socket or is_host(host)):
        yield f"must be {_POSTGRESQL}; a host is {RULE}"


def _is_port(text: str) -> bool:
    return re.fullmatch("[0-9]{1,5}", text) is not None and 1 <= int(text) <= 65_535


_FAULTS: Mapping[str, Callable[[SplitResult], Iterator[str]]] = {
    "file": _folder,
    "postgresql": _database,
    "s3": _bucket,
}
