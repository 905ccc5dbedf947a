"""Score files: which lines are rows, and what is said of those that are not."""

from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scorefile import LINE_BYTES, ScoreFile, lines_of, parse


def of(text: str | bytes) -> ScoreFile:
    data = text.encode() if isinstance(text, str) else text
    return parse(data.splitlines(keepends=True))


def rows(text: str | bytes) -> list[tuple[bytes, float]]:
    result = of(text)
    assert not result.bad
    return list(result.rows())


@pytest.mark.parametrize(
    "text",
    [
        "ann,1\nbob,2\n",
        "ann,1\nbob,2",
        "ann,1\r\nbob,2\r\n",
        "member,score\nann,1\nbob,2\n",
        "\ufeffmember,score\r\nann,1\r\nbob,2\r\n",
        "\ufeffann,1\nbob,2\n",
        "Member, Score\nann,1\n\nbob, 2 \n",
        '"ann","1"\n"bob",2\n',
    ],
)
def test_line_ends_a_byte_order_mark_a_header_quotes_and_empty_lines_change_no_row(text: str) -> None:
    assert rows(text) == [(b"ann", 1.0), (b"bob", 2.0)]


def test_members_keep_every_character_that_they_may_have() -> None:
    text = '"a,b",1\n"say ""hi""",2\n a ,3\n<b>x</b>,4\n😀/%?#+:{},5\n'
    assert [member.decode() for member, _ in rows(text)] == ["a,b", 'say "hi"', " a ", "<b>x</b>", "😀/%?#+:{}"]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("1", 1.0),
        ("+1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("-2E-1", -0.2),
        ("9007199254740993", 2.0**53),
        ("inf", math.inf),
        ("-INF", -math.inf),
        ("+inf", math.inf),
        ("1e-999", 0.0),
    ],
)
def test_a_score_is_a_decimal_number_or_infinite(text: str, score: float) -> None:
    assert rows(f"m,{text}") == [(b"m", score)]


def test_a_negative_zero_becomes_zero() -> None:
    [(_, score)] = rows("m,-0.0")
    assert math.copysign(1, score) == 1


@pytest.mark.parametrize("score", ["nan", "NaN", "", "x", "1_000", "0x10", "١", "1,5", "1 2", "infinity", "--1", "1e"])
def test_anything_else_is_no_score(score: str) -> None:
    assert [bad.number for bad in of(f'ok,1\nm,"{score}"\n').bad] == [2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"ann", "1 field instead of 2"),
        (b"ann,1,x", "3 fields instead of 2"),
        (b",1", "empty member"),
        (b"a\tb,1", "control character"),
        (b"a\x7fb,1", "control character"),
        (b'"a\x00b",1', "control character"),
        (b"m" * 257 + b",1", "member of 257 bytes"),
        ("é".encode() * 129 + b",1", "member of 258 bytes"),
        (b"\xff,1", "not UTF-8"),
        (b'"ann,1', "quotation mark"),
        (b'"ann"x,1', "quotation mark"),
        (b"m,1e999", "beyond what a double holds"),
        (b"member,score", "not a number"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_reason_and_spoils_no_other(line: bytes, reason: str) -> None:
    result = of(b"first,1\n" + line + b"\nlast,3\n")
    assert [member for member, _ in result.rows()] == [b"first", b"last"]
    assert [bad.number for bad in result.bad] == [2]
    assert reason in result.bad[0].reason


def test_a_repeated_member_is_bad_and_the_first_line_stands() -> None:
    result = of("member,score\nann,1\nbob,2\nann,3\n")
    assert list(result.rows()) == [(b"ann", 1.0), (b"bob", 2.0)]
    assert result.bad == [(4, "repeats the member 'ann' of line 2")]


def test_composed_and_decomposed_letters_are_two_members() -> None:
    assert len(rows("é,1\ne\u0301,2\n")) == 2


def test_every_bad_line_is_counted_though_only_the_first_are_explained() -> None:
    result = of("x\n" * 1000 + "ann,1\n")
    assert len(result.bad) == ScoreFile.EXPLAINED
    assert list(result.bad_numbers) == list(range(1, 1001))
    assert len(result) == 1


def test_a_long_refused_value_is_shown_cut() -> None:
    assert len(of("m," + "9x" * 500).bad[0].reason) < 100


def test_progress_hears_of_every_byte() -> None:
    sizes: list[int] = []
    text = b"member,score\r\nann,1\r\nbroken\r\n"
    parse(text.splitlines(keepends=True), seen=sizes.append)
    assert sum(sizes) == len(text)


MEMBERS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=60)
SCORES = st.floats(allow_nan=False)


@given(st.dictionaries(MEMBERS, SCORES, max_size=20))
def test_whatever_csv_writes_is_read_back_the_same(board: dict[str, float]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["member", "score"], *([member, repr(score)] for member, score in board.items())])
    data = io.BytesIO(text.getvalue().encode())
    result = parse(data)
    assert not result.bad
    assert {member.decode(): score for member, score in result.rows()} == board


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_at_all_are_read_to_the_end_and_every_line_is_a_row_bad_or_empty(lines: list[bytes]) -> None:
    lines = [line.replace(b"\n", b"") + b"\n" for line in lines]
    result = parse(lines)
    assert len(result) + len(result.bad_numbers) <= len(lines)


@pytest.mark.parametrize("over", [1, 2, LINE_BYTES, LINE_BYTES + 1, 5 * LINE_BYTES])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_without_end_is_one_bad_line_and_never_held_whole(over: int, end: bytes) -> None:
    data = b"ann,1\n" + b"x" * (LINE_BYTES + over) + end + (b"bob,2\n" if end else b"")
    result = parse(lines_of(io.BytesIO(data)))
    assert list(result.rows()) == [(b"ann", 1.0), (b"bob", 2.0)][: 2 if end else 1]
    assert result.bad == [(2, f"is longer than {LINE_BYTES} bytes")]
    assert max(map(len, lines_of(io.BytesIO(data)))) == LINE_BYTES + 1


@pytest.mark.parametrize("end", [b"\n", b""])
def test_the_longest_line_that_is_looked_at_is_judged_by_what_it_says(end: bytes) -> None:
    (bad,) = parse(lines_of(io.BytesIO(b"x" * (LINE_BYTES - 2) + b",1" + end))).bad
    assert bad.reason == f"has a member of {LINE_BYTES - 2} bytes; 256 is the most"
