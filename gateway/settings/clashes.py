"""Clashes: boards that a URL or a key could not tell apart.

Knows: names, keys, and which names a family stands for.
Must not know: what else a board says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations

from gateway.errors import Problem
from gateway.settings.leaderboards import LeaderboardSettings
from gateway.settings.partial import Doubtful
from gateway.settings.source import BOARDS
from gateway.settings.templates import Names


def clashes(boards: Sequence[LeaderboardSettings]) -> Iterator[Problem]:
    """Yield a problem for each pair; a board whose name or key is doubtful is in none on their account."""
    for index, first in _repeated(boards, lambda board: (board.key, board.period)):
        yield Problem(f"{BOARDS}[{index}].key", f"is the key of {BOARDS}[{first}], for the same periods")
    for index, first in _repeated(boards, lambda board: board.name):
        yield Problem(f"{BOARDS}[{index}].name", f"is the name of {BOARDS}[{first}]")
    yield from _overlaps(boards)


def _repeated(
    boards: Sequence[LeaderboardSettings], identity: Callable[[LeaderboardSettings], Hashable]
) -> Iterator[tuple[int, int]]:
    """Yield each board that is the same as an earlier one, and that one."""
    seen: dict[Hashable, int] = {}
    for index, board in enumerate(boards):
        with suppress(Doubtful):
            first = seen.setdefault(identity(board), index)
            if first != index:
                yield index, first


def _overlaps(boards: Sequence[LeaderboardSettings]) -> Iterator[Problem]:
    sound = {index: board for index, board in enumerate(boards) if _is_sound(board)}
    families = {index: Names(board.name, board.patterns()) for index, board in sound.items() if "<" in board.name}
    plain = [index for index in sound if index not in families]
    for one, other in combinations(families, 2):
        name = families[one].shared_with(families[other])
        if name is not None and sound[one].name != sound[other].name:  # equal ones were said already
            yield _overlap(one, other, name)
    for one, names in families.items():
        for other in plain:
            if names.pattern.fullmatch(sound[other].name):
                yield _overlap(one, other, sound[other].name)


def _is_sound(board: LeaderboardSettings) -> bool:
    try:
        return board.name_is_sound
    except Doubtful:
        return False


def _overlap(one: int, other: int, name: str) -> Problem:
    later, earlier = max(one, other), min(one, other)
    return Problem(f"{BOARDS}[{later}].name", f"{name!r} in a URL would also be {BOARDS}[{earlier}]")
