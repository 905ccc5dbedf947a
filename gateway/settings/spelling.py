"""Spelling: which key somebody meant who wrote one that there is not.

Knows: words that are close to each other.
Must not know: what any key is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return what an unknown key should have been; None where no known one is close."""
    names = list(known)
    close = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if not close:  # password for password_file
        close = [name for name in names if len(word) > 3 and name.startswith(word.lower())][:1]
    return close[0] if close else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the same as the end of a sentence."""
    names = list(known)
    close = meant(word, names)
    if close is not None:
        return f"unknown key; did you mean {close}?"
    return f"unknown key; there are {', '.join(names)}"
