"""Templates: names and keys with ``<placeholders>``, and whether two names can be the same URL.

Knows: how a template is written.
Must not know: which boards there are, Redis, HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product

from gateway.placeholders import scoped

DEFAULT_PLACEHOLDER = "[A-Za-z0-9_-]{1,64}"
NAME_LIMIT_BYTES = 128
_PLACEHOLDER = re.compile(r"<([^<>]*)>")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,31}")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SAMPLES = ("a", "Z", "0", "9", "42", "ab", "a1", "x-y", "a_b", "top", "en", "EU", "clan", "2026", "abcd", "0a1b2c3d")


def placeholders_in(template: str) -> list[str]:
    """Return the placeholders of a template in order, as often as they occur."""
    return _PLACEHOLDER.findall(template)


def fault_of(template: str) -> str | None:
    """Say what is wrong with how a template is written; None if nothing is."""
    if not template:
        return "must not be empty"
    if _CONTROL.search(template):
        return "must not hold control characters"
    if set("<>") & set(_PLACEHOLDER.sub("", template)):
        return "has a < or > that is not part of a <placeholder>"
    for word in placeholders_in(template):
        if not _WORD.fullmatch(word):
            return f"<{word}> is not a placeholder: lower-case letters, digits and _, beginning with a letter"
    return None


def fault_of_name(name: str) -> str | None:
    """Say what is wrong with a name that URLs carry; None if nothing is."""
    fault = "cannot travel in the path of a URL" if name in (".", "..") else fault_of(name)
    if fault is not None:
        return fault
    words = placeholders_in(name)
    if "period" in words:
        return "must not hold <period>: the period is asked for with ?period="
    if len(set(words)) < len(words):
        return "holds a placeholder twice"
    if "><" in name:
        return "holds two placeholders with nothing between them, so that a URL could be read in two ways"
    if len(_PLACEHOLDER.sub("", name).encode()) > NAME_LIMIT_BYTES:
        return f"must be at most {NAME_LIMIT_BYTES} bytes of UTF-8"
    return None


def name_pattern(name: str, placeholders: Mapping[str, re.Pattern[str]]) -> re.Pattern[str]:
    """Return the pattern whose full matches are the names that this template stands for."""
    parts = _PLACEHOLDER.split(name)
    literals, words = parts[::2], parts[1::2]
    source = re.escape(literals[0])
    for word, literal in zip(words, literals[1:], strict=True):
        source += scoped(placeholders[word]) + re.escape(literal)
    return re.compile(source)


class Names:
    """The names that a template stands for."""

    def __init__(self, template: str, placeholders: Mapping[str, re.Pattern[str]]) -> None:
        self.pattern = name_pattern(template, placeholders)
        self.examples = _examples(template, placeholders)

    def shared_with(self, other: Names) -> str | None:
        """Return a name that both stand for, None if none was found.

        Whether two patterns share a text is not decided in general: each template is filled with samples that its
        placeholders allow, and tried against the other.
        """
        for left, right in ((self, other), (other, self)):
            for name in left.examples:
                if right.pattern.fullmatch(name):
                    return name
        return None


def _examples(name: str, placeholders: Mapping[str, re.Pattern[str]]) -> list[str]:
    """Return some names that a template stands for; the one there is if it has no placeholder."""
    words = placeholders_in(name)
    fitting = [[sample for sample in _SAMPLES if placeholders[word].fullmatch(sample)][:6] for word in words]
    examples = []
    for values in product(*fitting):
        filled = dict(zip(words, values, strict=True))
        examples.append(_PLACEHOLDER.sub(lambda match, filled=filled: filled[match[1]], name))  # type: ignore[misc]
        if len(examples) >= 200:
            break
    return examples
