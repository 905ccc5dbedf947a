"""The ``serve`` command.

Knows: its arguments.
Must not know: how serving works.
"""

from __future__ import annotations

import argparse

from gateway.settings import Settings
from gateway.terminal import Commands

DEFAULT_BUILD = "gateway.app:build"


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add ``serve`` and its arguments, all but ``--config``."""
    parser = commands.add_parser(
        "serve",
        help="answer reads until SIGTERM or Ctrl-C",
        description="Answer reads until SIGTERM or Ctrl-C; a second one skips the drain.",
    )
    # For programs that put something around the gateway, as the demo does.
    parser.add_argument("--build", metavar="MODULE:FUNCTION", default=DEFAULT_BUILD, help=argparse.SUPPRESS)
    return parser


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Serve; return the exit status."""
    from gateway.server.parent import serve  # the help does not need it

    return serve(settings, build=args.build)
