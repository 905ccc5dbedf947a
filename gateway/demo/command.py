"""The ``demo`` command: one line starts everything, Ctrl-C ends it and leaves nothing behind.

Knows: its arguments, signals, what a person needs to be told.
Must not know: how the parts are started.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
from collections.abc import Mapping

from rich.console import Console

from gateway import arguments
from gateway.clock import Clock, SystemClock
from gateway.demo import board
from gateway.demo.embedded import LOOPBACK, CannotStart, find_redis_server
from gateway.demo.show import ANYWHERE, Show, running
from gateway.terminal import FAILED, Commands, consoles

LONGEST_S = 366 * 86_400
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add ``demo`` and its arguments."""
    parser = commands.add_parser(
        "demo",
        help="an embedded Redis with a real board, live writes, the gateway and a page to look at",
        description="Start a Redis primary with two replicas in a temporary folder, load a real board of 15,000 "
        "members, change its scores many times a second, and serve it. Ctrl-C ends all of it.",
    )
    parser.add_argument("--host", help=f"the address to listen on (default: {LOOPBACK}, or GATEWAY_SERVER__HOST)")
    parser.add_argument(
        "--port",
        type=arguments.whole(0, 65_535),
        default=8080,
        metavar="N",
        help="the port to listen on; 0 takes a free one (default: 8080)",
    )
    parser.add_argument("--redis", metavar="PATH", help="the redis-server to run (default: the one that is found)")
    parser.add_argument(
        "--seconds",
        type=arguments.number(0, LONGEST_S),
        metavar="N",
        help="stop after that time (default: run until Ctrl-C)",
    )
    return parser


def run(args: argparse.Namespace, environ: Mapping[str, str], clock: Clock | None = None) -> int:
    """Run the command until a signal or the end of its time; return its exit status."""
    out, err = consoles()
    try:
        return asyncio.run(_run(args, environ, clock or SystemClock(), out))
    except CannotStart as error:
        err.print(f"demo: {error.detail}")
        return FAILED


async def _run(args: argparse.Namespace, environ: Mapping[str, str], clock: Clock, out: Console) -> int:
    """Run the demo as a task that the first signal cancels, wherever it is; further ones change nothing."""
    stopped = asyncio.Event()
    demo = asyncio.create_task(_demo(args, environ, clock, out, stopped))

    def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            out.print("\nStopping …")
            demo.cancel()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await demo
    except asyncio.CancelledError:
        return 0


async def _demo(
    args: argparse.Namespace, environ: Mapping[str, str], clock: Clock, out: Console, stopped: asyncio.Event
) -> int:
    host = args.host or environ.get("GATEWAY_SERVER__HOST") or LOOPBACK
    _check_free(host, args.port)
    program = find_redis_server(args.redis)
    out.print(f"Starting {program} (a primary and two replicas), the board, the gateway …")
    async with running(program=program, host=host, port=args.port, environ=environ, clock=clock) as show:
        # A cancellation can get lost on the way here (asyncio.wait_for of Python 3.11 swallows one that comes just as
        # its future is done): the event cannot.
        if not stopped.is_set():
            _tell(out, show, LOOPBACK if host in ANYWHERE else host)
        if not await _ends_by_itself(show, stopped, args.seconds):
            return 0
    raise CannotStart("The gateway ended by itself.")


async def _ends_by_itself(show: Show, stopped: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the gateway's end, at most that long and until told to stop; return whether it ended."""
    waits = [asyncio.create_task(show.gateway.wait()), asyncio.create_task(stopped.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return waits[0].done() and not stopped.is_set()
    finally:
        for wait in waits:
            wait.cancel()


def _check_free(host: str, port: int) -> None:
    """Say at once that the port is taken, rather than after Redis and the board."""
    try:
        [family, *_], *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        raise CannotStart(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port."
        ) from None
    except ValueError:  # UnicodeError: a name that no name server can be asked for, as ``a..b``
        raise CannotStart(
            f"Cannot listen on {host}: it is not a name or an address. Choose another with --host."
        ) from None


def _tell(out: Console, show: Show, host: str) -> None:
    base = f"http://{f'[{host}]' if ':' in host else host}:{show.port}"
    replicas = ", ".join(map(str, show.redis.replicas))
    top = f"{base}/v1/leaderboards/{board.NAME}"
    out.print(
        f"\n  Look    {base}/demo\n"
        f"\n  Ask     curl -i '{top}/top?limit=10'"
        f"\n          curl -i '{top}/members/numpy'"
        f"\n          curl -i '{top}/members/numpy/neighbors?above=2&below=2'"
        f"\n          curl -i '{top}/ranks?from=101&to=110'"
        f"\n          curl -s '{top}/members?member=django&member=flask'"
        f"\n\n  Watch   curl -s http://{LOOPBACK}:{show.admin}/metrics"
        f"\n          redis-cli -p {show.redis.primary} monitor     (replicas: {replicas})"
        "\n\nCtrl-C ends all of it.",
    )
