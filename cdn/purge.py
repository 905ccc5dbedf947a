"""Purge: tell edges to drop what they hold under some tags, and report what each said.

Knows: how Varnish (as shipped), Fastly and Cloudflare take a purge; httpx.
Must not know: settings, leaderboards, where credentials come from.

A purge is safe to repeat, so a failed attempt is tried again, a bounded number of times. Credentials are sent, and
never shown: not in a report, a representation or an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import httpx

EdgeKind: TypeAlias = Literal["varnish", "fastly", "cloudflare"]

FASTLY_API = "https://api.fastly.com"
CLOUDFLARE_API = "https://api.cloudflare.com/client/v4"

TAGS_PER_REQUEST = {"varnish": 30, "fastly": 256, "cloudflare": 30}
"""What one request may hold: Fastly's and Cloudflare's smallest documented limits; Varnish's is our own choice, so
that the field stays under 8 KiB with tags of usual length."""

FIRST_PAUSE_S = 0.2
"""Before the second attempt; doubled before each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTarget:
    """One edge to purge.

    ``url``: where Varnish takes purges; for the others their API, if not the public one. ``service``: Fastly's
    service id. ``zone``: Cloudflare's zone id. ``token``: Fastly's or Cloudflare's token, Varnish's shared secret.
    ``timeout_s``: for one attempt. ``attempts``: in all.
    """

    edge: EdgeKind
    url: str | None = field(default=None, repr=False)
    service: str | None = None
    zone: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 2.0
    attempts: int = 3


class Purged(NamedTuple):
    """What came of one edge: ``purged`` or not, softly or not, after how many requests, and why not."""

    edge: EdgeKind
    where: str
    purged: bool
    soft: bool
    requests: int
    reason: str = ""


Sleep: TypeAlias = Callable[[float], Awaitable[object]]


async def purge(
    targets: Sequence[PurgeTarget],
    tags: Sequence[str],
    *,
    sleep: Sleep,
    transport: httpx.AsyncBaseTransport | None = None,
) -> list[Purged]:
    """Purge the tags at every edge at once, and return one report for each, in the order given.

    An edge that fails does not keep the others from being purged, and nothing is raised for it. ``sleep`` waits
    between attempts (a clock's); ``transport`` stands in for the network.
    """
    async with httpx.AsyncClient(transport=transport, follow_redirects=False) as client:
        return await asyncio.gather(*(_purge_one(client, target, tuple(tags), sleep) for target in targets))


class _Refused(Exception):
    """The edge understood and said no, or cannot be asked: asking again will not help."""


async def _purge_one(client: httpx.AsyncClient, target: PurgeTarget, tags: Sequence[str], sleep: Sleep) -> Purged:
    requests = 0
    reason = ""
    try:
        for request in _requests(target, tags):
            for attempt in range(target.attempts):
                if attempt:
                    await sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
                requests += 1
                reason = await _attempt(client, request, target.timeout_s)
                if not reason:
                    break
            if reason:
                break
    except _Refused as refusal:
        reason = str(refusal)
    except Exception as error:  # noqa: BLE001 - whatever one edge's address or token brings about, the others are told of
        reason = f"not asked ({type(error).__name__})"  # its text could hold a credential
    return _report(target, requests, reason=reason)


async def _attempt(client: httpx.AsyncClient, request: httpx.Request, timeout_s: float) -> str:
    """Send one request; return why it failed, or nothing. Raise ``_Refused`` where a repetition is of no use."""
    request.extensions["timeout"] = httpx.Timeout(timeout_s).as_dict()
    try:
        # httpx's own limits are for each step of an exchange; this one is for the whole.
        async with asyncio.timeout(timeout_s):
            response = await client.send(request)
    except (httpx.TimeoutException, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    except httpx.HTTPError as error:
        return f"not reached ({type(error).__name__})"  # its text could hold the address with a password
    if response.status_code == 429 or response.status_code >= 500:
        return f"answered {response.status_code}"
    if response.status_code >= 300 or not _agreed(response):
        raise _Refused(f"refused, with status {response.status_code}")
    return ""


def _agreed(response: httpx.Response) -> bool:
    """Whether the answer's body, where it is Cloudflare's, says success too."""
    if not response.headers.get("content-type", "").startswith("application/json"):
        return True
    try:
        body = response.json()
    except ValueError:
        return True
    return not (isinstance(body, dict) and body.get("success") is False)


def _requests(target: PurgeTarget, tags: Sequence[str]) -> Iterator[httpx.Request]:
    if target.token is not None and not (target.token.isascii() and target.token.isprintable()):
        raise _Refused("its token holds characters that a header field cannot: only printable ASCII can be sent")
    size = TAGS_PER_REQUEST[target.edge]
    for start in range(0, len(tags), size):
        yield _REQUEST[target.edge](target, tags[start : start + size])


def _varnish(target: PurgeTarget, tags: Sequence[str]) -> httpx.Request:
    headers = {"X-Purge-Tags": " ".join(tags)}
    if target.token is not None:
        headers["X-Purge-Secret"] = target.token
    return httpx.Request("PURGE", target.url or "", headers=headers)


def _fastly(target: PurgeTarget, tags: Sequence[str]) -> httpx.Request:
    headers = {"Fastly-Key": target.token or "", "Fastly-Soft-Purge": "1", "Surrogate-Key": " ".join(tags)}
    return httpx.Request("POST", f"{_base(target, FASTLY_API)}/service/{target.service}/purge", headers=headers)


def _cloudflare(target: PurgeTarget, tags: Sequence[str]) -> httpx.Request:
    url = f"{_base(target, CLOUDFLARE_API)}/zones/{target.zone}/purge_cache"
    headers = {"Authorization": f"Bearer {target.token or ''}"}
    return httpx.Request("POST", url, headers=headers, json={"tags": list(tags)})


_REQUEST: dict[EdgeKind, Callable[[PurgeTarget, Sequence[str]], httpx.Request]] = {
    "varnish": _varnish,
    "fastly": _fastly,
    "cloudflare": _cloudflare,
}


def _base(target: PurgeTarget, api: str) -> str:
    return (target.url or api).rstrip("/")


def _report(target: PurgeTarget, requests: int, *, reason: str = "") -> Purged:
    return Purged(target.edge, _where(target), not reason, target.edge == "fastly", requests, reason)


def _where(target: PurgeTarget) -> str:
    """Name the edge for people: an address without what could be a password, or an id."""
    if target.edge == "varnish":
        try:
            url = httpx.URL(target.url or "")
        except (httpx.InvalidURL, ValueError):
            return "(its url is not one)"
        return url.host if url.port is None else f"{url.host}:{url.port}"
    return (target.service if target.edge == "fastly" else target.zone) or ""
