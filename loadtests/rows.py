"""Synthetic boards of any size, with rows like the demo board's: a function of the row's number, nothing is stored.

Knows: names and scores.
Must not know: Redis, files.

The demo's top 100 have names of 9 bytes and scores of 9 digits on average; so have these, within a byte or two.
"""

from __future__ import annotations

from collections.abc import Iterator

SCORES = 1_577_565_209
"""Scores lie below this, a little above the highest of the demo's board."""

_STEP = 2_654_435_761
"""Prime and no divisor of ``SCORES``, so that scores do not repeat, and rows come in no order of score.

A board filled in order would lie in memory in order, and be faster to search than one that has lived.
"""


def member(number: int) -> str:
    """Return the member of row ``number``, counted from 0."""
    return f"pkg-{number}"


def score(number: int) -> int:
    """Return the score of row ``number``; no two rows of a board of up to a billion have the same."""
    return number * _STEP % SCORES


def rows(size: int) -> Iterator[tuple[str, int]]:
    """Yield the rows of a board."""
    for number in range(size):
        yield member(number), score(number)
