"""Rows and their ranks, and the scripts' source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.layouts.scripts import SCRIPTS, scripts_of
from gateway.layouts.sorted_set import rows_of


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 40), st.integers(1, 10))
def test_a_page_of_a_board_has_the_ranks_of_the_whole_board(scores: list[int], first: int, size: int) -> None:
    ordered = sorted(scores, reverse=True)
    flat = [text for place, score in enumerate(ordered) for text in (b"m%d" % place, b"%d" % score)]
    page = flat[2 * first : 2 * (first + size)]
    index = ordered.index(ordered[first]) if first < len(ordered) else first
    ordinal, competition = rows_of(page, first, index, "ordinal"), rows_of(page, first, index, "competition")
    places = range(first, min(first + size, len(ordered)))
    assert [entry.rank for entry in ordinal] == [place + 1 for place in places]
    assert [entry.rank for entry in competition] == [ordered.index(ordered[place]) + 1 for place in places]
    assert [entry.member for entry in competition] == [b"m%d" % place for place in places]


def test_scripts_are_only_those_that_the_boards_need_each_once() -> None:
    assert len(scripts_of(("desc", "ordinal"), ("desc", "ordinal"))) == 4
    everything = scripts_of(*SCRIPTS)
    assert len({script.digest for script in everything}) == len(everything) == 16


def test_scripts_name_no_key_but_their_own_and_raise_nothing_themselves() -> None:
    for script in scripts_of(*SCRIPTS):
        source = script.source.decode()
        assert "redis.call" not in source, "an error that call raises is wrapped differently by each version"
        assert source.count("KEYS") == source.count("KEYS[1]") == 1
