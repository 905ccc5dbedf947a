"""Terminal: what every command has in common: how it is added, where it prints, how it ends.

Knows: argparse, rich, signals.
Must not know: any command.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 (it has no public name)

FAILED = 1
MISUSED = 2
"""As argparse says it of arguments that it refuses."""
INTERRUPTED = 130
"""As a shell says it of a program that SIGINT ended: 128 and the signal's number."""


def consoles() -> tuple[Console, Console]:
    """Return standard output and standard error for plain text: as it is given, in lines as long as they are."""
    from rich.console import Console  # not for `serve`: its parent stays small

    out, err = (Console(stderr=is_err, highlight=False, soft_wrap=True, markup=False) for is_err in (False, True))
    return out, err


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: what it has begun is undone on the way out. For the main thread."""

    def interrupt(_number: int, frame: FrameType | None) -> None:
        on_ctrl_c = signal.getsignal(signal.SIGINT)  # asyncio puts its own there, which cancels the task that runs
        if not callable(on_ctrl_c):  # ignored: a shell does that for what it starts in the background
            raise KeyboardInterrupt
        on_ctrl_c(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
