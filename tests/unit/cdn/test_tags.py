"""Tags must tell boards apart at every edge, and never match within one another."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cdn.tags import EVERYTHING, leaderboard_tag, period_tag, tags_of

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


def test_an_answer_is_filed_under_everything_its_leaderboard_and_its_period() -> None:
    assert tags_of(None) == ("lb",)
    assert tags_of("downloads") == ("lb", "lb:downloads")
    assert tags_of("downloads", "2026-W12") == ("lb", "lb:downloads", "lb:downloads:2026-W12")


@given(name=NAMES, label=NAMES)
def test_tags_hold_only_what_every_edge_accepts(name: str, label: str) -> None:
    for tag in tags_of(name, label):
        assert re.fullmatch(r"[A-Za-z0-9_~%:-]+", tag)


def test_the_longest_names_fit_what_edges_accept() -> None:
    assert len(period_tag("🏆" * 32, "2026-03-19")) <= 1024


@given(one=NAMES, other=NAMES)
def test_two_leaderboards_never_share_a_tag(one: str, other: str) -> None:
    assert (leaderboard_tag(one) == leaderboard_tag(other)) == (one == other)


@given(name=NAMES, other=NAMES, label=NAMES)
def test_a_period_s_tag_is_never_a_leaderboard_s(name: str, other: str, label: str) -> None:
    assert period_tag(name, label) not in {leaderboard_tag(other), EVERYTHING}
