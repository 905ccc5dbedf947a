"""The ``archive`` command: lists finished periods that are kept, and rebuilds one while its key still lives.

Knows: its arguments, what it prints.
Must not know: how periods are read or kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random

from rich.console import Console

from gateway.archive import Archive, ArchiveLimits
from gateway.boards import Boards
from gateway.clock import Clock, SystemClock
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.errors import GatewayError, InvalidPeriod, OriginUnavailable
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import LastKnownStore, StoreError
from gateway.layouts.scripts import scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.loader import OriginLoader
from gateway.model import Target
from gateway.replicas.build import build
from gateway.settings import Settings
from gateway.terminal import FAILED, Commands, consoles

CONNECT_S = 5.0
"""How long Redis may take to be found at start; a command is not a service that waits for it."""


class _Refused(Exception):
    """What was asked for cannot be done; the message says why."""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add ``archive`` and its arguments, all but ``--config``."""
    parser = commands.add_parser(
        "archive",
        help="list or rebuild the archive of finished periods",
        description="list: print which finished periods are kept. rebuild: read a finished period again while its key "
        "still lives, and replace what is kept of it; gateways show it within a minute.",
    )
    parser.add_argument("action", choices=["list", "rebuild"], metavar="ACTION", help="list or rebuild")
    parser.add_argument("leaderboard", metavar="LEADERBOARD", nargs="?", help="the board's name, as in its URL")
    parser.add_argument("--period", metavar="LABEL", help="rebuild: the period's label, or previous")
    return parser


def run(args: argparse.Namespace, settings: Settings, clock: Clock | None = None) -> int:
    """Run the command; return its exit status."""
    out, err = consoles()
    clock = clock or SystemClock()
    try:
        store = _store(settings, clock)
        asyncio.run(_list(args, store, err) if args.action == "list" else _rebuild(args, settings, store, out, clock))
    except (_Refused, StoreError, GatewayError, OSError) as error:
        err.print(f"archive: {error}")
        return FAILED
    return 0


def _store(settings: Settings, clock: Clock) -> LastKnownStore:
    store = open_store(settings.last_known.store, clock=clock)
    if store is None:
        raise _Refused('nothing is archived, since [last_known] store is "none"')
    return store


async def _list(args: argparse.Namespace, store: LastKnownStore, err: Console) -> None:
    try:
        kept = sorted(await store.entries("archive"))
    finally:
        await store.close()
    shown = [(name, as_of) for name, as_of in kept if args.leaderboard in (None, name.leaderboard)]
    for name, as_of in shown:
        # Tabs for cut and awk, which a console would widen to spaces.
        sys.stdout.write(f"{name.leaderboard}\t{name.label}\t{_time(as_of)}\n")
    if not shown:
        err.print("archive: nothing is archived yet")


async def _rebuild(
    args: argparse.Namespace, settings: Settings, store: LastKnownStore, out: Console, clock: Clock
) -> None:
    try:
        target = _finished(args, settings, clock)
        async with _archive(settings, store, clock) as archive:
            snapshot = await _read(archive, target, clock)
    finally:
        await store.close()
    content = snapshot.content
    if not content.total:
        raise _Refused(f"the key of {target.leaderboard} {target.label} is gone; what is archived was left as it is")
    what = f"the first {len(content)} of {content.total} members, read at {_time(snapshot.as_of)}"
    out.print(f"archived {target.leaderboard} {target.label}: {what}")


def _finished(args: argparse.Namespace, settings: Settings, clock: Clock) -> Target:
    """Return the target asked for, a period that is final."""
    if args.leaderboard is None or args.period is None:
        raise _Refused("rebuild needs a leaderboard and --period")
    boards = Boards(settings.boards)
    target = boards.resolve(args.leaderboard, args.period, clock.wall())
    if target.period is None:
        raise InvalidPeriod("This leaderboard has no periods.")
    if clock.wall() < target.final_at:
        raise _Refused(f"{target.leaderboard} {target.label} is final at {_time(target.final_at)}")
    return target


@contextlib.asynccontextmanager
async def _archive(settings: Settings, store: LastKnownStore, clock: Clock) -> AsyncIterator[Archive]:
    """Give the archive, reading from Redis as the gateway does."""
    counters, random = Counters(), Random()
    kinds = [(board.order, board.ties) for board in settings.boards]
    reads = build(settings.redis, scripts=scripts_of(*kinds), clock=clock, counters=counters, random=random)
    origin = SortedSetOrigin(reads, clock=clock, request_budget_s=settings.redis.request_budget_s)
    await reads.start()
    try:
        yield Archive(
            store,
            OriginLoader(origin, clock),
            boards=Boards(settings.boards),
            snapshots=tuple,
            clock=clock,
            counters=counters,
            random=random.random,
            limits=ArchiveLimits(),
        )
    finally:
        await reads.stop()


async def _read(archive: Archive, target: Target, clock: Clock) -> Snapshot:
    """Rebuild, again while Redis is still being connected to."""
    deadline = clock.monotonic() + CONNECT_S
    while True:
        try:
            return await archive.rebuild(target)
        except OriginUnavailable:
            if clock.monotonic() >= deadline:
                raise
        await clock.sleep(0.1)


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
