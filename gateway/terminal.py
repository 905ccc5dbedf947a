"""Terminal: what every command has in common: how it is added, where it prints, how it ends.

Knows: argparse, rich.
Must not know: any command.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (it has no public name)

FAILED = 1
INTERRUPTED = 130
"""As a shell says it of a program that SIGINT ended: 128 and the signal's number."""


def consoles() -> tuple[Console, Console]:
    """Return standard output and standard error for plain text: as it is given, in lines as long as they are."""
    from rich.console import Console  # not for `serve`: its parent stays small

    out, err = (Console(stderr=is_err, highlight=False, soft_wrap=True, markup=False) for is_err in (False, True))
    return out, err
