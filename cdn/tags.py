"""Tags: the names under which edges file an answer, so that it can be purged.

Knows: what every edge accepts in a tag.
Must not know: URLs, edges' fields, how a purge is sent.

A tag is at most 1,024 ASCII characters without spaces and commas, and Cloudflare folds upper and lower case: two
leaderboards that differ in case only are then purged together, which is harmless.
"""

from __future__ import annotations

from urllib.parse import quote

EVERYTHING = "lb"
"""The tag of every answer, for a purge of all there is."""


def tags_of(leaderboard: str | None, label: str | None = None) -> tuple[str, ...]:
    """Return an answer's tags, the widest first.

    ``leaderboard``: the name as in the URL, decoded; None for an answer about all of them (the catalogue).
    ``label``: the period's label, never an alias; None where the board has no periods.
    """
    if leaderboard is None:
        return (EVERYTHING,)
    board = leaderboard_tag(leaderboard)
    return (EVERYTHING, board) if label is None else (EVERYTHING, board, period_tag(leaderboard, label))


def leaderboard_tag(leaderboard: str) -> str:
    """Return the tag of all answers about one leaderboard, whatever the period."""
    return f"{EVERYTHING}:{_plain(leaderboard)}"


def period_tag(leaderboard: str, label: str) -> str:
    """Return the tag of all answers about one period of one leaderboard."""
    return f"{leaderboard_tag(leaderboard)}:{_plain(label)}"


def _plain(name: str) -> str:
    """Encode a name so that it holds no separator of any edge's, and no character that is special in a pattern."""
    return quote(name, safe="").replace(".", "%2E")
