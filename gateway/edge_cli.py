"""The commands about edges: ``edge`` prints a configuration, ``purge`` drops boards, ``probe`` measures ages.

Knows: the settings, the edges' configurations, purging, the probe, Redis for the probe's writes.
Must not know: how any of them is done.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import httpx
from redis import Redis, RedisError
from redis.cluster import RedisCluster

from cdn import purge
from cdn.edges import cloudflare, nginx, varnish
from cdn.edges.site import Site
from cdn.policy import Lives
from cdn.tags import EVERYTHING, leaderboard_tag, period_tag
from gateway import arguments
from gateway.app import bound_s
from gateway.boards import Boards
from gateway.clock import Clock, SystemClock
from gateway.errors import GatewayError
from gateway.load.client import primary
from gateway.model import Target
from gateway.probe import MEMBER, Plan, Probe, ProbeFailed, Report
from gateway.settings import Settings
from gateway.terminal import FAILED, INTERRUPTED, MISUSED, interruptible

MOST_PER_S = 1_000_000
LONGEST_S = 7 * 86_400.0
"""How long a probe may run: it keeps every age that it saw."""

EDGES: Mapping[str, Callable[[Site], str]] = MappingProxyType(
    {"nginx": nginx.configuration, "varnish": varnish.configuration, "cloudflare": cloudflare.configuration}
)


def add_parser(commands: Any) -> None:
    """Add the three commands; ``commands`` is what ``ArgumentParser.add_subparsers`` returns."""
    _add_edge(commands.add_parser("edge", help="print the configuration of nginx, Varnish or Cloudflare"))
    _add_purge(commands.add_parser("purge", help="tell the edges to drop boards"))
    _add_probe(commands.add_parser("probe", help="measure how old the answers are that clients see"))


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command that was given; return the exit status."""
    try:
        match args.command:
            case "edge":
                return _edge(args, settings)
            case "purge":
                return _purge(args, settings)
            case _:
                return _probe(args, settings)
    except ArgumentTypeError as error:
        _say([f"{args.command}: {error}"], sys.stderr)
        return MISUSED
    except GatewayError as error:
        _say([f"{args.command}: {error.detail}"], sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        _say([f"{args.command}: stopped."], sys.stderr)
        return INTERRUPTED


# ---- edge ----------------------------------------------------------------------------------------------------------


def _add_edge(parser: argparse.ArgumentParser) -> None:
    site = Site()
    add = parser.add_argument
    # Values go into a configuration as they are: no form lets one end a word there, or mean something of its own.
    origin, listener, file, network = arguments.endpoint, arguments.listener, arguments.path, arguments.network
    listener_h2, proxy, rate = arguments.listener_or_none, arguments.proxy, arguments.whole(0, MOST_PER_S)
    add("edge", choices=sorted(EDGES), help="the program, or the CDN")
    add("--origin", type=origin, action="append", metavar="HOST:PORT", help="the gateway; several times for several")
    add("--listen", type=listener, metavar="ADDRESS", default=site.listen, help="nginx: where it listens (%(default)s)")
    add(
        "--listen-h2",
        type=listener_h2,
        metavar="ADDRESS",
        default=site.listen_h2,
        help='nginx: where it speaks HTTP/2, or "none"',
    )
    add("--tls-certificate", type=file, metavar="FILE", help="nginx: HTTP/2 over TLS with this certificate chain")
    add("--tls-key", type=file, metavar="FILE", help="nginx: and this key")
    add("--state-dir", type=file, metavar="FOLDER", default=site.state_dir, help="nginx: the folder for all it writes")
    add("--access-log", type=file, metavar="FILE", default=site.access_log, help="nginx: where requests are logged")
    add(
        "--rate",
        type=rate,
        metavar="N",
        default=site.rate_per_s,
        help="nginx: requests a second of one client; 0: any (%(default)s)",
    )
    add("--trusted-proxy", type=proxy, action="append", metavar="NETWORK", help="nginx: whose X-Forwarded-For counts")
    add("--purge-from", type=network, action="append", metavar="NETWORK", help="Varnish: who may purge (this machine)")
    add("--soft-purge", action="store_true", help="Varnish: it has the module xkey, so purged answers may serve stale")
    add("--purge-secret-file", type=file, metavar="FILE", help="Varnish: a file, there, with what a purge must say")


def site_of(settings: Settings, args: argparse.Namespace) -> Site:
    """Return the declaration that every edge's configuration is written from."""
    defaults = Site()
    return Site(
        lives=tuple(
            Lives(
                client_ttl_s=board.client_ttl_s,
                edge_ttl_s=board.edge_ttl_s,
                stale_while_revalidate_s=board.stale_while_revalidate_s,
                stale_if_error_s=board.stale_if_error_s,
            )
            for board in settings.boards
        ),
        dialects=tuple(settings.cdn.dialects),
        request_budget_s=settings.redis.request_budget_s,
        origins=tuple(args.origin or [_own_address(settings)]),
        listen=args.listen,
        listen_h2=args.listen_h2,
        tls=(args.tls_certificate, args.tls_key) if args.tls_certificate else None,
        state_dir=args.state_dir.rstrip("/") or "/",
        access_log=args.access_log,
        rate_per_s=args.rate,
        trusted_proxies=tuple(args.trusted_proxy or ()),
        purgers=tuple(args.purge_from or defaults.purgers),
        purge_secret_file=args.purge_secret_file or (_secret_file(settings) if args.edge == "varnish" else None),
        soft_purge=args.soft_purge,
    )


def _edge(args: argparse.Namespace, settings: Settings) -> int:
    if bool(args.tls_certificate) != bool(args.tls_key):
        raise ArgumentTypeError("--tls-certificate and --tls-key belong together.")
    sys.stdout.write(EDGES[args.edge](site_of(settings, args)))
    return 0


def _own_address(settings: Settings) -> str:
    """Return where the gateway of these settings is found from its own machine."""
    host = settings.server.host
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104 compared, not bound
    try:
        return arguments.endpoint(f"{reached}:{settings.server.port}")
    except ArgumentTypeError:
        raise ArgumentTypeError(
            "server.host and server.port do not say where the gateway is: give --origin HOST:PORT."
        ) from None


def _secret_file(settings: Settings) -> str | None:
    files: Iterable[Path | None] = (each.token_file for each in settings.cdn.purge if each.edge == "varnish")
    found = next((str(file) for file in files if file is not None), None)
    try:
        return None if found is None else arguments.path(found)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"the settings' token_file for Varnish {error}; give --purge-secret-file.") from None


# ---- purge ---------------------------------------------------------------------------------------------------------


def _add_purge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("leaderboards", nargs="*", metavar="LEADERBOARD", help="names as in URLs")
    parser.add_argument("--period", metavar="LABEL", help="only this period, by its label")
    parser.add_argument("--all", action="store_true", help="everything that the edges hold of this gateway")


def _purge(args: argparse.Namespace, settings: Settings) -> int:
    tags = _tags(args)
    targets = [
        purge.PurgeTarget(
            edge=each.edge,
            url=each.url,
            service=each.service,
            zone=each.zone,
            token=None if each.token is None else each.token.get_secret_value(),
            timeout_s=each.timeout_ms / 1000,
            attempts=each.attempts,
        )
        for each in settings.cdn.purge
    ]
    if not targets:
        raise GatewayError("The settings name no edge to purge: add [[cdn.purge]] tables.")
    reports = asyncio.run(purge.purge(targets, tags, sleep=SystemClock.sleep))
    _say(map(_purge_line, reports))
    return 0 if all(report.purged for report in reports) else 1


def _tags(args: argparse.Namespace) -> Sequence[str]:
    if args.all and not args.leaderboards:
        return [EVERYTHING]
    if args.all or not args.leaderboards:
        raise GatewayError("Name the leaderboards to purge, or say --all.")
    if args.period:
        return [period_tag(name, args.period) for name in args.leaderboards]
    return [leaderboard_tag(name) for name in args.leaderboards]


def _purge_line(report: purge.Purged) -> str:
    how = f"purged {'softly' if report.soft else 'at once'}" if report.purged else f"NOT purged: {report.reason}"
    return f"{report.edge:<10} {report.where}  {how} ({report.requests} request{'s' * (report.requests != 1)})"


# ---- probe ---------------------------------------------------------------------------------------------------------


def _add_probe(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("leaderboard", help="a board that is the probe's alone: its key must be empty, and is emptied at the end")
    add("--url", type=_url, default="http://127.0.0.1:8000", help="the edge, or the gateway (default %(default)s)")
    rate, seconds = arguments.number(0.01, 10_000), arguments.number(0.1, LONGEST_S)
    add("--rate", type=rate, default=50.0, metavar="N", help="reads a second (default %(default)s)")
    add("--seconds", type=seconds, default=60.0, metavar="N", help="for how long (default %(default)s)")


def _url(text: str) -> str:
    """Take the address of a server, with a path in front of the gateway's if need be."""
    try:
        url = httpx.URL(text)
        host, port = url.raw_host.decode(), 80 if url.port is None else url.port
        right = url.scheme in ("http", "https") and arguments.is_host(host) and 0 < port <= 65_535
        right = right and not url.query and not url.fragment
    except (httpx.InvalidURL, ValueError):
        right = False
    if not right:
        raise ArgumentTypeError('must be text such as "http://127.0.0.1:8000" or "https://edge.example"')
    return text.rstrip("/")


def _probe(args: argparse.Namespace, settings: Settings) -> int:
    if args.rate * args.seconds < 1:
        raise ArgumentTypeError("--rate and --seconds come to less than one read.")
    clock = SystemClock()
    target = Boards(settings.boards).resolve(args.leaderboard, None, clock.wall())
    if target.board.order != "desc":
        raise ProbeFailed("The probe needs a board in descending order.")
    plan = Plan(
        url=f"{args.url}/v1/leaderboards/{quote(args.leaderboard, safe='')}/top?limit=1",
        reads_per_s=args.rate,
        seconds=args.seconds,
        bound_s=bound_s(target.board, settings.redis),
    )
    with interruptible(), primary(settings.redis) as client:
        report = _measured(client, target, plan, clock)
    _say(report.lines())
    return 0 if report.kept else 1


def _measured(client: Redis | RedisCluster, target: Target, plan: Plan, clock: Clock) -> Report:
    """Run the probe on a board that nobody else uses, and leave it empty."""
    try:
        found: Any = client.execute_command("ZRANGE", target.key, 0, 1)  # type: ignore[no-untyped-call] # redis-py's own
        if any(member != MEMBER.encode() for member in found):
            raise ProbeFailed("The board holds members; the probe wants one of its own, and would disturb it.")
        try:
            return asyncio.run(_run(client, target.key, plan, clock))
        finally:
            client.execute_command("ZREM", target.key, MEMBER)  # type: ignore[no-untyped-call] # redis-py's own
    except (RedisError, UnicodeError) as error:  # the latter: a name that Sentinel or a cluster gave is malformed
        raise ProbeFailed(f"Redis did not take the probe's writes: {error}") from error


async def _run(client: Redis | RedisCluster, key: bytes, plan: Plan, clock: Clock) -> Report:
    def zadd(score: float) -> None:
        client.execute_command("ZADD", key, repr(score), MEMBER)  # type: ignore[no-untyped-call] # redis-py's own

    async def write(wall: float) -> None:
        await asyncio.to_thread(zadd, wall)

    await write(clock.wall())
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(limits=limits) as reader:
        probe = Probe(write, reader, clock)
        await probe.settle(plan)
        return await probe.run(plan)


def _say(lines: Iterable[str], stream: Any = None) -> None:
    (stream or sys.stdout).write("".join(f"{line}\n" for line in lines))
