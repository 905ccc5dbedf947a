"""Showing: values and keys that somebody wrote, as text that is safe on a terminal and in a log.

Knows: how TOML writes a value; which characters a terminal might obey.
Must not know: what any value is for, or which of them are secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, time
from itertools import islice

MOST_OF_A_VALUE = 60
MOST_OF_A_TEXT = 1000

_BARE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def plain(text: str, most: int = MOST_OF_A_TEXT) -> str:
    """Escape what is not printable, a terminal's commands among it, and cut what is too long."""
    return cut("".join(map(_printable, text[: most + 1])), most)


def shown(value: object) -> str:
    """Write a value as TOML would, cut where it is too long to be read."""
    return cut(toml(value, most=MOST_OF_A_VALUE), MOST_OF_A_VALUE)


def cut(text: str, most: int) -> str:
    """Return at most so many characters, the last of them an ellipsis where something was left out."""
    return text if len(text) <= most else f"{text[: most - 3]}…"


def toml(value: object, *, most: int = MOST_OF_A_TEXT, depth: int = 0) -> str:
    """Write a value as TOML, or JSON's null. Of a long one, no more than ``most`` characters and items are made."""

    def inner(item: object) -> str:
        return "…" if depth > 3 else toml(item, most=most, depth=depth + 1)

    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key, most)} = {inner(item)}" for key, item in islice(value.items(), most))
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(inner(item) for item in islice(value, most))}]"
    return _quoted(value[: most + 1]) if isinstance(value, str) else _scalar(value)


def _key(key: object, most: int) -> str:
    text = str(key)
    return text if _BARE.fullmatch(text) else _quoted(text[: most + 1])


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return _whole(value)
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _whole(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes thousands of digits in hexadecimal only: that takes no time that grows faster
        return hex(value)


def _quoted(text: str) -> str:
    return f'"{"".join(_ESCAPES.get(character) or _printable(character) for character in text)}"'


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
