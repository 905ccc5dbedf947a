"""Negotiation: which content coding to send, and whether the client already has the body.

Knows: RFC 9110 §12.5.3 (Accept-Encoding), §12.4.2 (weights), §13.1.2 (If-None-Match).
Must not know: ASGI, leaderboards, what the bodies are.
"""

from __future__ import annotations

import re

from gateway.encode import Coding

_PREFERENCE: tuple[Coding, ...] = ("br", "gzip", "identity")
"""Ours, among codings that the client likes equally: br is a sixth smaller than gzip here."""

_CONSIDERED_BYTES = 8 * 1024
"""Longer fields are as if they were not there: no client of ours sends such, and one alone would hold up everyone."""

_ELEMENT = re.compile(
    r"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)"  # a coding, or *
    r"(?:[ \t]*;[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?[ \t]*"
)
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAG_LIST = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,(?:[ \t]*,)*[ \t]*{_TAG})*[ \t,]*")
_OPAQUE = re.compile(r'"[^"]*"')


def coding_for(accept_encoding: str | None) -> Coding:
    """Choose among identity, gzip and br; None is a request without the field.

    The highest weight wins, ours breaks ties. ``identity`` that is not named is acceptable but comes last. A
    malformed element is as if it were not there. Where nothing is acceptable the answer is ``identity``: the field is
    a wish, and a 406 would help nobody.
    """
    if not accept_encoding or len(accept_encoding) > _CONSIDERED_BYTES:
        return "identity"
    weights = _weights(accept_encoding)
    unnamed = weights.get("*")
    best: Coding = "identity"
    best_weight = 0.0
    for coding in _PREFERENCE:
        weight = weights.get(coding, unnamed)
        if weight is None:
            weight = _LAST if coding == "identity" else 0.0
        if weight > best_weight:
            best, best_weight = coding, weight
    return best


_LAST = 0.0001
"""Below the smallest weight that can be written, above not acceptable."""


def _weights(accept_encoding: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for element in accept_encoding.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is not None:
            name = match[1].lower()
            # RFC 9110 §8.4.1.3: x-gzip is gzip. Of one coding named twice the first counts.
            weights.setdefault("gzip" if name == "x-gzip" else name, float(match[2] or 1))
    return weights


def none_match(if_none_match: str, etag: str) -> bool:
    """Return whether the condition holds, so that the body is sent; False means 304.

    ``etag`` is ours, weak or strong, and comparison is weak, as §13.1.2 demands. Several field lines are one list.
    A malformed field is ignored as a whole: sending the body is never wrong.
    """
    if if_none_match.strip(" \t") == "*":
        return False
    if len(if_none_match) > _CONSIDERED_BYTES or _TAG_LIST.fullmatch(if_none_match) is None:
        return True
    return etag.removeprefix("W/") not in _OPAQUE.findall(if_none_match)
