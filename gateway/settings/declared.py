"""Declared: what was written for the edges, for somebody who knows HTTP to examine.

Knows: the shape of what is handed over.
Must not know: who examines it, or what for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from gateway.errors import Problem
from gateway.settings.leaderboards import LeaderboardSettings
from gateway.settings.sections import CdnSettings


class Declared(NamedTuple):
    """Each board as it was written, unknown keys included, and as it was understood.

    Keys that were not understood are doubtful: what asks for one is to be run by ``partial.certain``.
    """

    leaderboards: Sequence[tuple[Mapping[str, object], LeaderboardSettings]]
    cdn: CdnSettings


Examine: TypeAlias = Callable[[Declared], Iterable[Problem]]
