"""Rows are valid JSON whatever ids and scores are, and the short way for plain ones writes what the long way does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Entry
from gateway.rows import row_list, row_texts
from tests.unit.test_encode import PLAIN

SCORES = st.integers(-(2**53), 2**53).map(float) | st.floats(allow_nan=False)
PLAIN_IDS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1).map(str.encode)
IDS = PLAIN_IDS | st.binary(min_size=1)


@given(st.lists(st.builds(Entry, st.integers(1, 10**9), IDS, SCORES), max_size=12))
def test_both_ways_write_the_same(entries: list[Entry]) -> None:
    assert row_list(PLAIN, entries).decode() == ",".join(row_texts(PLAIN, entries))


@pytest.mark.parametrize("member", [b'"', b"\\", b"\x00", b"\x1f", b"\x7f", "é".encode(), b"\xff", b"%d", b" ", b"~"])
@pytest.mark.parametrize("score", [0.0, -0.0, 1e17, 2.0**53, 1e300, 0.5, float("inf"), float("-inf"), -7.0])
def test_every_byte_and_score_is_read_back(member: bytes, score: float) -> None:
    rows = json.loads(b"[%b]" % row_list(PLAIN, [Entry(1, b"ann", 1.0), Entry(2, member, score)]))
    assert [row["rank"] for row in rows] == [1, 2]
    assert rows[1]["member"] == member.decode("utf-8", "backslashreplace")
    assert float(rows[1]["score"]) == score
