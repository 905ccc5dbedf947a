"""Order: what the parent hands to a worker at its start, and the times that both keep to.

Knows: the settings, the name of the function that builds a gateway.
Must not know: how either process does its part.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.settings import Settings

CANNOT_START = 3
"""A worker's exit status when no further try would help it."""

FINISH_S = 3.0
"""How long what is in flight may take once the drain is over."""

STOP_S = 1.5
"""How long the gateway may then take to save what it knows and to close its connections."""

LEAVE_S = FINISH_S + STOP_S + 0.4
"""How long a worker may take from the word to its exit, before it is killed: with the default drain, under 10 s."""


@dataclass(frozen=True)
class Order:
    """A worker's number, the settings, and ``module:function``, which is called with them and ``counters=``."""

    index: int
    settings: Settings
    build: str
