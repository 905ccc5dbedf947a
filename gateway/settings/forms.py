"""Forms: the value types of the settings, each with the sentence that says what is accepted.

Knows: numbers with bounds, addresses, Redis URLs, files that hold a secret.
Must not know: which key has which form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from gateway.settings import hosts, stores
from gateway.settings.reading import content


@dataclass(frozen=True)
class Form:
    """What a key takes, as the end of "must be …"; ``secret`` keeps the value out of every message."""

    text: str
    secret: bool = False


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^:/?#@\[\]\s]+)):(?P<port>[0-9]{1,5})")

MOST_IN_A_SECRET = 65_536

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
"""Controls, and the halves of characters that a variable's bytes come to when they are not UTF-8."""
_NOT_IN_URLS = re.compile(f"{_CONTROL.pattern}|\\s")


class BadHost(ValueError):
    """The host of an address is none that could be reached."""


def address(text: str) -> Address:
    """Parse ``host:port`` (an IPv6 host in brackets); raise ValueError otherwise."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(text)
    sound = hosts.is_host(match["host"]) if match["six"] is None else hosts.is_ipv6(match["six"])
    if not sound:
        raise BadHost(text)
    return Address(match["six"] or match["host"], int(match["port"]))


def secret_in(path: Path) -> SecretStr:
    """Read a file that holds nothing but a secret; one line end after it is dropped. Raises OSError, ValueError."""
    text = content(path, most=MOST_IN_A_SECRET).decode()
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ValueError("the file is empty")
    return SecretStr(text)


def _wrong(form: Form) -> PydanticCustomError:
    return PydanticCustomError("form", "{text}", {"text": f"must be {form.text}"})


def _wrong_host(form: Form) -> PydanticCustomError:
    return _wrong(Form(f"{form.text}; the host is {hosts.RULE}"))


def _parsed(text: str, form: Form) -> Address:
    try:
        return address(text)
    except BadHost:
        raise _wrong_host(form) from None
    except ValueError:
        raise _wrong(form) from None


def _check_address(text: str) -> str:
    if _parsed(text, ADDRESS).port == 0:
        raise _wrong(ADDRESS)
    return text


def _check_admin(text: str) -> str:
    if text != "none":
        _parsed(text, ADMIN)
    return text


def _check_host(text: str) -> str:
    if not hosts.is_host(text):
        raise ValueError("no host")  # not the text: pydantic could not write the half of a character
    return text


def _port_of(url: SplitResult) -> int | None:
    """Return the port, 6379 where none is given, None for one that is no port."""
    try:
        return 6379 if url.port is None else url.port
    except ValueError:
        return None


def _check_text(text: str) -> str:
    if _CONTROL.search(text) is not None:
        raise PydanticCustomError("form", "must not hold control characters")
    return text


def _check_redis_url(text: str, *, form: Form, credentials: bool) -> str:
    if _NOT_IN_URLS.search(text) is not None:  # urlsplit leaves some of it out and takes the rest for a host
        raise _wrong(form)
    url = urlsplit(text)
    plain = not url.query and not url.fragment and re.fullmatch(r"(/[0-9]{0,4})?", url.path)
    if url.scheme not in ("redis", "rediss") or not url.hostname or not _port_of(url) or not plain:
        raise _wrong(form)
    if "@" in url.netloc and not credentials:
        raise PydanticCustomError(
            "form", "must not hold a user or password: give redis.username and redis.password_file instead"
        )
    if not hosts.is_host(url.hostname):
        raise _wrong_host(form)
    return text


def _check_store(text: str) -> str:
    fault = stores.fault_of(text)
    if fault is not None:
        raise PydanticCustomError("form", "{text}", {"text": fault})
    return text


def _check_path(path: Path) -> Path:
    _check_text(str(path))
    return path


def _check_http_url(text: str) -> str:
    if _NOT_IN_URLS.search(text) is not None:
        raise _wrong(HTTP_URL)
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or not _port_of(url):
        raise _wrong(HTTP_URL)
    if not hosts.is_host(url.hostname):
        raise _wrong_host(HTTP_URL)
    return text


ADDRESS = Form('text such as "127.0.0.1:26379" or "[::1]:26379"')
ADMIN = Form('text such as "127.0.0.1:9464", or "none" for no admin listener')
NODE_URL = Form('text such as "redis://127.0.0.1:6379/0" (rediss:// for TLS)', secret=True)
TIER_URL = Form('text such as "redis://user:password@127.0.0.1:6379/0" (rediss:// for TLS)', secret=True)
STORE = Form(stores.FORM, secret=True)
HTTP_URL = Form('text such as "http://127.0.0.1:6081"', secret=True)

AddressText = Annotated[str, AfterValidator(_check_address), ADDRESS]
AdminText = Annotated[str, AfterValidator(_check_admin), ADMIN]
NodeUrl = Annotated[
    str, AfterValidator(lambda text: _check_redis_url(text, form=NODE_URL, credentials=False)), NODE_URL
]
TierUrl = Annotated[str, AfterValidator(lambda text: _check_redis_url(text, form=TIER_URL, credentials=True)), TIER_URL]
StoreUrl = Annotated[str, AfterValidator(_check_store), STORE]
HttpUrl = Annotated[str, AfterValidator(_check_http_url), HTTP_URL]
Text = Annotated[str, Field(min_length=1), AfterValidator(_check_text), Form("text that is not empty")]
HostText = Annotated[str, AfterValidator(_check_host), Form(hosts.RULE)]
FilePath = Annotated[Path, Field(strict=False), AfterValidator(_check_path), Form("the path of a file")]
Flag = Annotated[bool, Form("true or false")]

DAY_S = 86_400
YEAR_S = 366 * DAY_S

LifeMs = Annotated[int, Field(ge=0, le=3_600_000), Form("a whole number of milliseconds from 0 to 3600000 (an hour)")]
TimeoutMs = Annotated[int, Field(ge=1, le=60_000), Form("a whole number of milliseconds from 1 to 60000")]
LagMs = Annotated[int, Field(ge=50, le=600_000), Form("a whole number of milliseconds from 50 to 600000")]
EdgeS = Annotated[int, Field(ge=0, le=YEAR_S), Form("a whole number of seconds from 0 to 31622400 (a year)")]
LongS = Annotated[float, Field(ge=0, le=YEAR_S), Form("a number of seconds from 0 to 31622400 (a year)")]
IntervalS = Annotated[float, Field(ge=0.1, le=DAY_S), Form("a number of seconds from 0.1 to 86400")]
DrainS = Annotated[float, Field(ge=0, le=600), Form("a number of seconds from 0 to 600")]
Port = Annotated[int, Field(ge=0, le=65_535), Form("a whole number from 1 to 65535, or 0 for any free port")]
Workers = Annotated[int, Field(ge=1, le=256), Form("a whole number from 1 to 256")]
Rate = Annotated[int, Field(ge=0, le=1_000_000), Form("a whole number from 0 to 1000000")]
