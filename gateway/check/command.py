"""The ``check`` command: are the settings right, is Redis there, and what does the gateway make of both.

Knows: the topology as the reads see it, each board's staleness bound.
Must not know: HTTP, how a node is chosen.

Exit status 0: nothing is wrong; 1: something is, and it is listed; 2: bad settings, which the command line says.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.app import bound_s
from gateway.boards import Boards
from gateway.check.nodes import node_problems, replica_problems, unresolved
from gateway.check.slots import cluster_problems, cluster_view, slot_notes
from gateway.clock import Clock, SystemClock
from gateway.counters import Counters
from gateway.errors import GatewayError, OriginUnavailable
from gateway.layouts.scripts import scripts_of
from gateway.layouts.sorted_set import SortedSetOrigin
from gateway.model import Board
from gateway.replicas.build import build
from gateway.replicas.failures import ErrorReply
from gateway.replicas.reads import ReplicaReads
from gateway.replicas.report import NodeReport
from gateway.settings import RedisSettings, Settings
from gateway.terminal import FAILED, Commands

SETTLE_S = 3.0
"""How long nodes get to show what they are: lag is proven by a sample or two, at most 2 s apart by default."""
BOARDS_READ = 100
"""Of more boards only the first are looked up: the answer would come late and say little more."""
_SHAPES = {"fixed": "one primary and its replicas", "sentinel": "Sentinel", "cluster": "Redis Cluster"}


class Finding(NamedTuple):
    """A board with what was read of it, or why nothing was."""

    board: Board
    total: int | None
    trouble: str = ""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add ``check``, all but ``--config``."""
    return commands.add_parser(
        "check",
        help="check the settings, connect to Redis, print what is found",
        description="Check the settings, connect to Redis as the gateway would, and print the nodes as they are seen, "
        "each board's staleness bound, and what is wrong. Nothing is written.",
    )


def run(args: argparse.Namespace, settings: Settings, clock: Clock | None = None) -> int:
    """Check; return 0 if nothing is wrong, else 1."""
    logging.getLogger("gateway").setLevel(logging.CRITICAL)  # what nodes do is in the report
    lines, problems = asyncio.run(_check(settings, clock or SystemClock()))
    print_line = sys.stdout.write
    print_line(f"{args.config}: the settings are right, {len(settings.leaderboards)} leaderboard(s)\n")
    for warning in settings.warnings:
        print_line(f"note: {warning}\n")
    for line in lines:
        print_line(f"{line}\n")
    for problem in problems:
        print_line(f"problem: {problem}\n")
    return FAILED if problems else 0


async def _check(settings: Settings, clock: Clock) -> tuple[list[str], list[str]]:
    """Return what to print and what is wrong."""
    redis = settings.redis
    kinds = dict.fromkeys((board.order, board.ties) for board in settings.boards)
    reads = build(redis, scripts=scripts_of(*kinds), clock=clock, counters=Counters(), random=random.Random())
    await reads.start()
    try:
        nodes = await _settled(reads, clock)
        origin = SortedSetOrigin(reads, clock=clock, request_budget_s=redis.request_budget_s)
        findings = await _findings(settings, origin, clock)
    finally:
        await reads.stop()
    lines = [f"redis: {_SHAPES[redis.shape]}", *_node_lines(nodes), *_board_lines(findings, redis)]
    names = await unresolved(redis)
    problems = [
        *names,
        *node_problems(nodes, redis),
        *(() if names else replica_problems(nodes, redis)),
        *(f"{one.board.name}: {one.trouble}" for one in findings if one.trouble),
    ]
    if redis.shape == "cluster":
        problems += cluster_problems(await cluster_view(redis), settings.boards)
        lines += slot_notes(settings.boards)
    return lines, problems


async def _settled(reads: ReplicaReads, clock: Clock) -> Sequence[NodeReport]:
    deadline = clock.monotonic() + SETTLE_S
    while True:
        nodes = reads.nodes()
        if (nodes and all(node.state == "up" for node in nodes)) or clock.monotonic() > deadline:
            return nodes
        await clock.sleep(0.05)


async def _findings(settings: Settings, origin: SortedSetOrigin, clock: Clock) -> list[Finding]:
    boards = Boards(settings.boards)
    findings: list[Finding] = []
    for board in settings.boards:
        if board.is_family or len(findings) >= BOARDS_READ:
            findings.append(Finding(board, None))
            continue
        try:
            target = boards.resolve(board.name, None, clock.wall())
            findings.append(Finding(board, (await origin.window(target, 1, 1)).total))
        except GatewayError as error:
            findings.append(Finding(board, None, f"{error.detail} (key {board.key}{_because(error)})"))
    return findings


def _because(error: GatewayError) -> str:
    """Return the code that Redis refused the last attempt with, if it did."""
    cause = error.__cause__
    if isinstance(error, OriginUnavailable) and isinstance(cause, ErrorReply):
        return f", Redis says {cause.code}"
    return ""


def _node_lines(nodes: Sequence[NodeReport]) -> Iterator[str]:
    rows = [("shard", "role", "address", "state", "lag", "link", "version")]
    for node in nodes:
        lag = "-" if node.lag_s is None or node.role == "primary" else f"{node.lag_s:.2f} s"
        link = "-" if node.role == "primary" else "up" if node.link_up else "down"
        rows.append((str(node.shard), node.role, node.address, node.state, lag, link, node.version or "-"))
    return _columns(rows)


def _board_lines(findings: Sequence[Finding], redis: RedisSettings) -> Iterator[str]:
    yield "leaderboards:"
    rows = [("name", "read from", "period", "members now", "staleness bound")]
    for board, total, _ in findings:
        period = "none" if board.calendar is None else board.calendar.kind
        rows.append(
            (board.name, board.read_from, period, "-" if total is None else str(total), f"{bound_s(board, redis):g} s")
        )
    yield from _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
