"""Files of the store: what is written is read back whole or not at all, under names that any leaderboard can have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lastknown.blobs import pack, path_of, unpack
from gateway.lastknown.store import Kept, Name, Shelf

shelves: st.SearchStrategy[Shelf] = st.sampled_from(("last", "archive"))
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
names = st.builds(Name, shelves, texts, st.one_of(st.just(""), texts))


@given(names, st.binary(max_size=300), st.floats(0, 1e11))
def test_a_file_says_what_was_put_into_it(name: Name, blob: bytes, as_of: float) -> None:
    assert unpack(pack(name, blob, as_of)) == (name, Kept(blob, as_of))


@given(st.data())
def test_a_file_that_is_torn_or_changed_anywhere_is_not_read(data: st.DataObject) -> None:
    whole = pack(Name("last", "race", "2026-W12"), b"rows and rows", 1.5)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert unpack(whole[:cut]) is None
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    assert unpack(whole[:at] + bytes([whole[at] ^ value]) + whole[at + 1 :]) is None
    assert unpack(whole + b"\n") is None


@pytest.mark.parametrize("foreign", [b"", b"{}", b"LBGW\x02" + bytes(80), b"LBGW\x01" + bytes(100)])
def test_a_foreign_file_is_not_read(foreign: bytes) -> None:
    assert unpack(foreign) is None


def test_a_file_of_an_unknown_shelf_is_not_read() -> None:
    assert unpack(pack(Name("other", "race"), b"", 0.0)) is None  # type: ignore[arg-type]  # written by a later version


@given(names)
def test_every_name_gives_one_short_portable_path(name: Name) -> None:
    path = path_of(name)
    assert re.fullmatch(r"(last|archive)/[a-z0-9-]{1,60}\.[0-9a-f]{24}\.board", path)


def test_names_that_differ_in_case_slashes_or_length_have_paths_of_their_own() -> None:
    several = [
        "a",
        "A",
        "a/b",
        "a-b",
        "a b",
        "../a",
        "\u00e9",
        "e\u0301",
        "🏁",
        "x" * 128,
        "x" * 127,
        "-",
        "last known",
    ]
    keys = [Name(shelf, name, label) for shelf in ("last", "archive") for name in several for label in ("", "2026")]
    keys.append(Name("last", "a 2026"))
    assert len({path_of(key) for key in keys}) == len(keys)
