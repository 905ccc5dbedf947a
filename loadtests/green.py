"""The few calls into gevent, which carries no types.

Knows: gevent.
Must not know: Locust, whose import replaces the standard library's sockets in the whole process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent  # type: ignore[import-untyped]
from gevent.monkey import get_original  # type: ignore[import-untyped]

READABLE = 1
"""EPOLLIN; gevent takes the name away together with ``select.epoll``."""


def sleep(seconds: float) -> None:
    """Let other greenlets run for that long; 0: give each its turn."""
    gevent.sleep(seconds)


def spawn(function: Callable[..., object], *arguments: object) -> None:
    """Run a function in a greenlet of its own."""
    gevent.spawn(function, *arguments)


def epoll() -> Any:
    """Return a real epoll object, whether or not gevent has replaced the ``select`` module."""
    return get_original("select", "epoll")()
