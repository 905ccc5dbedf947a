"""Freshness: what to do with a snapshot of this age, as one table.

Knows: ages, lives, whether a flight is under way, whether the last load failed.
Must not know: clocks, tasks, snapshots' contents, or who asks. Nothing here awaits.

The rules:

- A snapshot's age counts from when its read began: its data is at least that old.
- In grace nobody waits: the stored snapshot is served, and one refresh runs behind it.
- An old snapshot alone is no outage: its first caller waits for a load and is told "stale" only if that fails.
- After a failure nobody waits who can be served, and new loads are held back for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from gateway.model import Board

FIRST_HOLD_S = 0.25
LONGEST_HOLD_S = 1.0
"""A second at most: the first fresh snapshot has to follow within two seconds of Redis's return."""

SHORT_LIFE_S = 1.0
"""How long rows without their profiles are kept (the contract: 1 s at most)."""


class Age(Enum):
    """A stored snapshot's age against its board's lives."""

    FRESH = auto()
    GRACE = auto()
    OLD = auto()
    NONE = auto()


class Loading(Enum):
    """What is known of loads for this key."""

    IDLE = auto()
    FLYING = auto()
    HELD = auto()
    """The last load failed a moment ago, or failed before and another is already trying."""
    HOLD_OVER = auto()


class Action(Enum):
    """What the read path does for this caller."""

    SERVE = auto()
    SERVE_AND_REFRESH = auto()
    LOAD = auto()
    JOIN = auto()
    SERVE_STALE = auto()
    SERVE_STALE_AND_LOAD = auto()
    FAIL = auto()


_TABLE: dict[Age, dict[Loading, Action]] = {
    Age.FRESH: {
        Loading.IDLE: Action.SERVE,
        Loading.FLYING: Action.SERVE,
        Loading.HELD: Action.SERVE,
        Loading.HOLD_OVER: Action.SERVE,
    },
    Age.GRACE: {
        Loading.IDLE: Action.SERVE_AND_REFRESH,
        Loading.FLYING: Action.SERVE,
        Loading.HELD: Action.SERVE,
        Loading.HOLD_OVER: Action.SERVE_AND_REFRESH,
    },
    Age.OLD: {
        Loading.IDLE: Action.LOAD,
        Loading.FLYING: Action.JOIN,
        Loading.HELD: Action.SERVE_STALE,
        Loading.HOLD_OVER: Action.SERVE_STALE_AND_LOAD,
    },
    Age.NONE: {
        Loading.IDLE: Action.LOAD,
        Loading.FLYING: Action.JOIN,
        Loading.HELD: Action.FAIL,
        Loading.HOLD_OVER: Action.LOAD,
    },
}


@dataclass(frozen=True, slots=True)
class Life:
    """How long a snapshot is fresh, and how long after that it is served while one refresh runs (seconds)."""

    ttl_s: float
    grace_s: float

    def age(self, age_s: float | None) -> Age:
        """Classify an age in seconds; None means that nothing is stored.

        ``ttl_s`` 0 means "share flights, store nothing": whatever is stored is last known only.
        """
        if age_s is None:
            return Age.NONE
        if self.ttl_s <= 0:
            return Age.OLD
        if age_s <= self.ttl_s:
            return Age.FRESH
        return Age.GRACE if age_s <= self.ttl_s + self.grace_s else Age.OLD


def life_of(board: Board, *, short_lived: bool) -> Life:
    """Return a board's life, or the shorter one of rows whose profiles could not be read."""
    return Life(min(board.ttl_s, SHORT_LIFE_S), 0.0) if short_lived else Life(board.ttl_s, board.grace_s)


def loading(*, flying: bool, failures: int, held: bool) -> Loading:
    """Classify what is known of loads: failures in a row, whether the hold after the last one still runs."""
    if not failures:
        return Loading.FLYING if flying else Loading.IDLE
    return Loading.HELD if held or flying else Loading.HOLD_OVER


def decide(age: Age, state: Loading, *, flying: bool) -> Action:
    """Return the table's word, with one refinement it has no column for.

    After a failure a flight may be under way behind the answers. Who has nothing to be served joins it.
    """
    if age is Age.NONE and flying:
        return Action.JOIN
    return _TABLE[age][state]


def hold_s(failures: int, jitter: float) -> float:
    """Return how long to hold new loads after this many failures in a row (≥ 1).

    Doubles from 0.25 s to 1 s; ``jitter`` in [0, 1) takes up to a quarter off, so that instances do not probe a
    recovering Redis in step.
    """
    longest = min(FIRST_HOLD_S * 2.0 ** min(failures - 1, 8), LONGEST_HOLD_S)
    return longest * (1 - jitter / 4)
