"""Placeholders: what may stand for a ``<word>`` in a name, as an expression.

Knows: regular expressions, alone and inside another one.
Must not know: names, keys, which boards there are.
"""

from __future__ import annotations

import re

_GLOBAL_FLAGS = re.compile(r"\A(?:\(\?[aiLmsux]+\))+")
_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def compiled(text: str) -> re.Pattern[str]:
    """Compile what a placeholder may be; raise ``re.error``, whatever is wrong with it."""
    try:
        pattern = re.compile(text, re.ASCII)
        re.compile(scoped(pattern))
    except (ValueError, OverflowError, RecursionError) as error:
        raise re.error(str(error)) from error
    return pattern


def scoped(pattern: re.Pattern[str]) -> str:
    """Return the pattern for use inside another one: its flags hold for it alone, and a comment in it ends in it."""
    letters = "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)
    end = "\n" if pattern.flags & re.VERBOSE else ""
    return f"(?{letters}:{_GLOBAL_FLAGS.sub('', pattern.pattern)}{end})"
