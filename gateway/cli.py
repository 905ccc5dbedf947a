"""The command line: which commands there are, the settings they get, the exit status.

Knows: where each command lives, and how bad settings are shown.
Must not know: what a command does.

Exit status: 0 done, 1 it could not be done, 2 bad settings or arguments. A command's module is imported only when it is
called: ``serve`` needs neither the HTTP client of ``purge`` nor the progress bar of ``load``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from gateway import __version__
from gateway.errors import Problem, SettingsError
from gateway.settings import CdnSettings, LeaderboardSettings, Settings, load
from gateway.settings.declared import Declared
from gateway.settings.partial import Doubtful, certain
from gateway.terminal import INTERRUPTED

BAD_SETTINGS = 2


class Command(NamedTuple):
    """Where a command lives: ``add_parser(commands)`` and ``run(args, settings)``, or ``run(args, environ)``."""

    module: str
    help: str
    takes_settings: bool = True


COMMANDS: Mapping[str, Command] = {
    "serve": Command("gateway.server.command", "answer reads until SIGTERM or Ctrl-C"),
    "check": Command("gateway.check.command", "check the settings, connect to Redis, print what is found"),
    "load": Command("gateway.load.command", "put a CSV file of member,score lines in place of a board"),
    "edge": Command("gateway.edge_cli", "print the configuration of nginx, Varnish or Cloudflare"),
    "purge": Command("gateway.edge_cli", "tell the edges to drop boards"),
    "probe": Command("gateway.edge_cli", "measure how old the answers are that clients see"),
    "archive": Command("gateway.archive_cli", "list or rebuild the archive of finished periods"),
    "demo": Command(
        "gateway.demo.command", "an embedded Redis with a real board, the gateway, a page", takes_settings=False
    ),
}


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run one command; return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    environ = os.environ if environ is None else environ
    args = parser_for(arguments).parse_args(arguments)
    command = COMMANDS[args.command]
    try:
        given: Any = settings_of(args.config, environ) if command.takes_settings else environ
        status: int = import_module(command.module).run(args, given)
    except SettingsError as error:
        print(f"leaderboard-gateway: {len(error.problems)} problem(s) in the settings", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem.path}: {problem.message}", file=sys.stderr)
        return BAD_SETTINGS
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def parser_for(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; of the commands, only the one that is called has its arguments."""
    parser = argparse.ArgumentParser(
        prog="leaderboard-gateway",
        description="A read-path caching gateway for game leaderboards that live in Redis sorted sets.",
    )
    parser.add_argument("--version", action="version", version=f"leaderboard-gateway {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    done: set[str] = set()
    for name, command in COMMANDS.items():
        if called is None or COMMANDS.get(called, command).module != command.module or called not in COMMANDS:
            commands.add_parser(name, help=command.help)
        elif command.module not in done:
            import_module(command.module).add_parser(commands)
            done.add(command.module)
    for name, subparser in commands.choices.items():
        if COMMANDS[name].takes_settings:
            subparser.add_argument("--config", metavar="FILE", required=True, help="the settings, a TOML file")
    return parser


def settings_of(path: str, environ: Mapping[str, str]) -> Settings:
    """Read the settings, and examine what they tell caches."""
    return load(path, environ, examine=edge_problems)


def edge_problems(declared: Declared) -> Iterator[Problem]:
    """Yield what could not be true in HTTP, or not at an edge."""
    from cdn import contradictions

    for index, (table, board) in enumerate(declared.leaderboards):
        path = f"leaderboards[{index}]"
        for key, message in contradictions.in_declaration(table, cached=_cached(board)):
            yield Problem(f"{path}.{key}", message)
        yield from certain(_past_the_period(board, path))
    yield from certain(_unpurgeable(declared.cdn))


def _cached(board: LeaderboardSettings) -> bool:
    """Return whether the board's top is kept, True while nobody knows: that excludes nothing."""
    try:
        return board.caches_top
    except Doubtful:
        return True


def _past_the_period(board: LeaderboardSettings, path: str) -> Iterator[Problem]:
    """Yield the lives that somebody set and that no period lasts; the default ones are cut where they end."""
    from cdn import contradictions
    from cdn.policy import Lives

    shortest_s = board.shortest_period_s()
    if shortest_s is None:
        return
    written = board.model_fields_set - board.doubtful
    lives: dict[str, Any] = {key: board.life(key) if key in written else 0 for key in contradictions.LIFE_KEYS}
    for key, message in contradictions.in_periods(Lives(**lives), shortest_s):
        yield Problem(f"{path}.{key}", message)


def _unpurgeable(cdn: CdnSettings) -> Iterator[Problem]:
    from cdn import contradictions

    edges = {index: target.edge for index, target in enumerate(cdn.purge) if "edge" not in target.doubtful}
    for index, edge in edges.items():
        for key, message in contradictions.in_purging(cdn.dialects, [edge]):
            yield Problem(f"cdn.{key.replace('[0]', f'[{index}]')}", message)
