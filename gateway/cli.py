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
from gateway.settings import Settings, load
from gateway.settings.declared import Declared
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
    "archive": Command("gateway.archive_cli", "list, show or rebuild the archive of finished periods"),
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
    from cdn.policy import Lives

    for index, (table, board) in enumerate(declared.leaderboards):
        path = f"leaderboards[{index}]"
        found = list(contradictions.in_declaration(table, cached=board is None or board.caches_top))
        if board is not None and (shortest_s := board.shortest_period_s()) is not None:
            lives = Lives(
                client_ttl_s=board.life("client_ttl_s"),
                edge_ttl_s=board.life("edge_ttl_s"),
                stale_while_revalidate_s=board.life("stale_while_revalidate_s"),
                stale_if_error_s=board.life("stale_if_error_s"),
            )
            found += contradictions.in_periods(lives, shortest_s)
        yield from (Problem(f"{path}.{key}", message) for key, message in found)
    if declared.cdn is not None:
        edges = [target.edge for target in declared.cdn.purge]
        for key, message in contradictions.in_purging(declared.cdn.dialects, edges):
            yield Problem(f"cdn.{key}", message)
