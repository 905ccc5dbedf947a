"""The few calls into gevent and into those parts of Locust that carry no types.

Knows: gevent, Locust's event hooks.
Must not know: what anybody does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent  # type: ignore[import-untyped]
from gevent.monkey import get_original  # type: ignore[import-untyped]
from locust.event import EventHook

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


def listen(hook: EventHook, listener: Callable[..., object]) -> None:
    """Call ``listener`` with keyword arguments whenever the event fires."""
    hook.add_listener(listener)  # type: ignore[no-untyped-call]
