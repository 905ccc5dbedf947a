"""Codings and conditions, against a second reading of RFC 9110 that shares no code with the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.negotiation import coding_for, none_match

CODINGS = ["identity", "gzip", "br", "x-gzip", "*", "zstd", "deflate"]
WEIGHTS = ["", ";q=0", ";q=0.001", ";q=0.5", "; Q=0.50", " ;\tq=1.000", ";q=1", ";q=0.", ";q=0.000"]
BROKEN = [
    "gzip;q=2",
    "gzip;q=1.001",
    "br;q=-1",
    "gzip;q=0.1234",
    "gzip; level=1",
    "gz ip",
    ";q=1",
    "br;q=",
    "br q=1",
    "",
    " ",
]


def model(elements: list[tuple[str, Fraction]]) -> tuple[set[str], dict[str, Fraction]]:
    """Read RFC 9110 §12.5.3 literally: return the acceptable codings among ours, and the weights that were named."""
    named: dict[str, Fraction] = {}
    for coding, weight in elements:
        named.setdefault({"x-gzip": "gzip"}.get(coding, coding), weight)
    acceptable = set()
    for coding in ("identity", "gzip", "br"):
        if coding in named:
            allowed = named[coding] > 0  # "listed …: acceptable unless it is accompanied by a qvalue of 0"
        elif "*" in named:
            allowed = named["*"] > 0  # "* matches any available content coding not explicitly listed"
        else:
            allowed = coding == "identity"  # "acceptable by default unless specifically excluded"
        if allowed:
            acceptable.add(coding)
    return acceptable, named


ELEMENT = st.tuples(st.sampled_from(CODINGS), st.sampled_from(WEIGHTS))


@given(st.lists(ELEMENT, min_size=1, max_size=6), st.lists(st.sampled_from(BROKEN), max_size=2), st.randoms())
def test_the_coding_is_acceptable_and_none_is_liked_better(
    elements: list[tuple[str, str]], broken: list[str], random: object
) -> None:
    written = [f"{coding.title() if len(coding) % 2 else coding}{weight}" for coding, weight in elements]
    field = ", ".join([*broken, *written, *broken])
    parsed = [(coding, Fraction(weight.partition("=")[2].rstrip(".") or 1)) for coding, weight in elements]
    acceptable, named = model(parsed)
    chosen = coding_for(field)
    assert chosen in (acceptable or {"identity"})
    best = max((named.get(coding, named.get("*", Fraction(0))) for coding in acceptable), default=Fraction(0))
    assert named.get(chosen, named.get("*", Fraction(0))) == best or not acceptable


@pytest.mark.parametrize(
    ("field", "coding"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("br, gzip", "br"),
        ("gzip, deflate, br, zstd", "br"),
        ("gzip;q=1, br;q=0.5", "gzip"),
        ("gzip;q=0.1", "gzip"),
        ("gzip;q=0.5, identity", "identity"),
        ("identity;q=0", "identity"),
        ("identity;q=0, gzip", "gzip"),
        ("*", "br"),
        ("*;q=0", "identity"),
        ("*;q=0, gzip", "gzip"),
        ("br;q=0, *", "gzip"),
        ("gzip;q=0", "identity"),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=nonsense", "identity"),
        ("gzip, br;q=9", "gzip"),
        ("\xff, gzip", "gzip"),
        (",,gzip,,", "gzip"),
    ],
)
def test_the_field_is_read_as_the_rfc_says(field: str | None, coding: str) -> None:
    assert coding_for(field) == coding


ETAG = 'W/"abc"'
OPAQUE = st.text("abc!,*W/ ".replace(" ", ""), max_size=4)
TAGS = st.lists(st.tuples(st.booleans(), OPAQUE), min_size=1, max_size=5)


@given(TAGS, st.sampled_from([", ", ",", " ,\t", ", , "]), OPAQUE)
def test_a_listed_tag_is_known_whether_weak_or_strong(tags: list[tuple[bool, str]], comma: str, ours: str) -> None:
    field = comma.join(f'{"W/" if weak else ""}"{opaque}"' for weak, opaque in tags)
    assert none_match(field, f'W/"{ours}"') == (ours not in [opaque for _, opaque in tags])


@pytest.mark.parametrize(
    "field", ["*", " * ", 'W/"abc"', '"abc"', '"x", W/"abc"', '"x","abc"', ',, "abc" ,', '"a,b", "abc"', '"é", "abc"']
)
def test_a_match_means_not_modified(field: str) -> None:
    assert not none_match(field, ETAG)


@pytest.mark.parametrize(
    "field",
    [
        "",
        "abc",
        '"ABC"',
        '"abcd"',
        '"a,bc"',
        'w/"abc"',
        'W/ "abc"',
        '*, "abc"',
        '"abc" "x"',
        '"abc',
        'abc"',
        '"abc"; x',
        '"a b"',
    ],
)
def test_anything_else_gets_the_body(field: str) -> None:
    assert none_match(field, ETAG)


def test_a_field_longer_than_any_client_sends_is_not_considered() -> None:
    assert coding_for("a," * 4_000 + "br") == "br"
    assert coding_for("a," * 5_000 + "br") == "identity"
    assert not none_match('"a",' * 2_000 + '"abc"', ETAG)
    assert none_match('"a",' * 3_000 + '"abc"', ETAG)


EVIL: dict[str, Callable[[int], str]] = {
    "commas": lambda size: '"a"' + "," * (size - 4) + "x",
    "commas and spaces": lambda size: '"a"' + ", " * ((size - 4) // 2) + "x",
    "few commas, many spaces": lambda size: '"a"' + ("," + " " * 60) * ((size - 4) // 61) + "x",
    "spaces": lambda size: '"a",' + " " * (size - 5) + "x",
    "leading commas": lambda size: ", " * ((size - 1) // 2) + "x",
    "tags": lambda size: '"a",' * ((size - 1) // 4) + "x",
    "weak marks": lambda size: "W/" * (size // 2),
    "quotes": lambda size: '"' * (size - 1) + "x",
    "a tag without an end": lambda size: '"' + "a" * (size - 1),
    "codings": lambda size: "a" * (size - 1) + "@",
    "weights": lambda size: "a;" + " " * (size - 3) + "@",
    "many codings": lambda size: "a;q=1," * ((size - 1) // 6) + "@",
}
LONGEST = 8 * 1024 - 2


def processor_s(work: Callable[[], object]) -> float:
    """Return what some work costs this thread, whatever else the machine does: the best of several tries."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(25))


@pytest.mark.parametrize("kind", EVIL)
@pytest.mark.parametrize("read", [lambda field: none_match(field, ETAG), coding_for], ids=["tags", "codings"])
def test_the_longest_malformed_field_costs_as_its_length_does(read: Callable[[str], object], kind: str) -> None:
    """Sixteen times as long, not two hundred and fifty-six times as dear."""
    short, long = EVIL[kind](LONGEST // 16), EVIL[kind](LONGEST)
    assert LONGEST * 0.9 < len(long) <= 8 * 1024, "longer ones are not looked at"
    assert processor_s(lambda: read(long)) < 60 * processor_s(lambda: read(short)) + 0.000_1


def test_a_malformed_field_is_no_match() -> None:
    assert all(none_match(evil(LONGEST), ETAG) for evil in EVIL.values())
