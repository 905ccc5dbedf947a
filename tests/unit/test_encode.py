"""Encode: numbers, members, bodies, slices, codings and ETags, against independent readers."""

from __future__ import annotations

import gzip
import json
import math
import struct
from typing import Any

import brotli  # type: ignore[import-untyped]  # ships no stubs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import encode, jsontext
from gateway.encode import Content, Snapshot
from gateway.model import Board, Entry, SnapshotKey, Stamp, Standings, Target, Window
from gateway.periods import Period

PLAIN = Target(Board(name="downloads", key="lb:downloads"), "downloads", b"lb:downloads")
WITH_PROFILES = Target(Board(name="p", key="p", profiles="names"), "p", b"p", b"names")
KEY = SnapshotKey("downloads", None, 1, 100)
AS_OF = 1_795_724_880.1239


def content(count: int, target: Target = PLAIN, as_of: float = AS_OF, first: int = 1) -> Content:
    entries = [Entry(first + n, b"member-%d" % n, 1000.0 - n) for n in range(count)]
    return Content.of(target, first, Window(Stamp(0.0, as_of), 15_000, entries))


def body_of(made: Content, first: int, last: int, *, stale: bool = False) -> Any:
    return json.loads(made.rendering(first, last, stale=stale).form("identity"))


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@given(st.floats(allow_nan=False))
def test_a_score_reads_back_to_the_same_double(score: float) -> None:
    text = jsontext.number(score)
    read = json.loads(text, parse_constant=no_constants)
    assert float(read) == score
    assert text != b"-0"


@given(st.integers(-(2**53), 2**53))
def test_a_whole_score_has_neither_exponent_nor_fraction(score: int) -> None:
    assert jsontext.number(float(score)) == str(score).encode()


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (math.inf, b'"inf"'),
        (-math.inf, b'"-inf"'),
        (-0.0, b"0"),
        (0.1, b"0.1"),
        (1e22, b"10000000000000000000000"),
        (5e-324, b"5e-324"),
        (9007199254740992.0, b"9007199254740992"),
    ],
)
def test_numbers_at_the_edges(score: float, text: bytes) -> None:
    assert jsontext.number(score) == text


@given(st.text(min_size=1, max_size=60))
def test_a_member_reads_back_as_itself(member: str) -> None:
    encoded = member.encode("utf-8", "surrogatepass")
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return
    assert json.loads(jsontext.json_string(encoded)) == member


def test_bytes_that_are_not_utf8_appear_as_escapes() -> None:
    assert json.loads(jsontext.json_string(b"a\xff\xfe\xc3")) == r"a\xff\xfe\xc3"


@given(st.integers(0, 100), st.integers(1, 100), st.integers(1, 100))
def test_one_content_serves_every_range_inside_it(count: int, first: int, length: int) -> None:
    last = min(first + length - 1, 100)
    body = body_of(content(count), first, last)
    assert [entry["rank"] for entry in body["entries"]] == [n for n in range(1, count + 1) if first <= n <= last]
    assert body["total"] == 15_000


def test_a_window_beyond_the_top_is_sliced_from_its_own_first_place() -> None:
    body = body_of(content(50, first=101), 101, 150)
    assert [entry["rank"] for entry in body["entries"]] == list(range(101, 151))


def test_the_body_has_the_contracts_fields_in_their_order() -> None:
    assert content(1).rendering(1, 1, stale=False).form("identity") == (
        b'{"leaderboard":"downloads","period":null,"order":"desc","as_of":"2026-11-26T20:28:00.123Z","stale":false,'
        b'"total":15000,"entries":[{"rank":1,"member":"member-0","score":1000}]}'
    )


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_coding_decodes_to_the_plain_body_and_is_made_once(coding: encode.Coding) -> None:
    rendering = content(100).rendering(1, 100, stale=False)
    form = rendering.form(coding)
    decode = gzip.decompress if coding == "gzip" else brotli.decompress
    assert decode(form) == rendering.form("identity")
    assert len(form) < len(rendering.form("identity")) / 2
    assert rendering.form(coding) is form


def test_the_etag_leaves_out_only_as_of() -> None:
    tag = content(100).rendering(1, 100, stale=False).etag
    assert tag.startswith(b'W/"')
    assert tag == content(100, as_of=AS_OF + 60).rendering(1, 100, stale=False).etag
    assert tag != content(100).rendering(1, 100, stale=True).etag
    assert tag != content(100).rendering(1, 99, stale=False).etag
    assert tag != content(99).rendering(1, 100, stale=False).etag
    other = Target(Board(name="other", key="lb:downloads"), "other", b"lb:downloads")
    assert tag != content(100, other).rendering(1, 100, stale=False).etag


def test_limits_beyond_the_end_share_one_rendering() -> None:
    made = content(3)
    assert made.rendering(1, 50, stale=False) is made.rendering(1, 100, stale=False)


def test_renderings_that_clients_can_ask_for_are_bounded() -> None:
    made = content(100)
    for last in range(1, 101):
        made.rendering(1, last, stale=False).form("gzip")
    assert made.size_bytes < 200_000


def test_invented_parts_are_compressed_a_few_times_only_and_the_whole_always() -> None:
    made = content(100)
    codings: tuple[encode.Coding, ...] = ("br", "gzip")
    offered: list[encode.Coding] = []
    for last in (*range(60, 99), 5, 98):
        for coding in codings:
            part = made.rendering(1, last, stale=False)
            offered.append(part.offer(coding))
            part.form(part.offer(coding))
    assert offered == [*codings * 8, *["identity"] * (len(offered) - 16)]
    assert made.rendering(1, 100, stale=False).offer("br") == "br"
    kept = made.rendering(1, 100, stale=False)
    for last in range(1, 100):
        made.rendering(1, last, stale=False)
    assert made.rendering(1, 100, stale=False) is kept
    made.read_again()
    assert made.rendering(1, 50, stale=False).offer("br") == "br"


@given(st.integers(0, 100), st.booleans())
def test_a_dumped_snapshot_is_restored_with_body_and_etag(count: int, stale: bool) -> None:
    made = Snapshot(KEY, content(count), began=50.0, as_of=AS_OF + 5, stale=stale)
    read = encode.restore(made.dump(), KEY, monotonic=1_000.0, wall=AS_OF + 65)
    assert read.content.same_as(made.content)
    assert read.began == pytest.approx(940.0)
    assert (read.as_of, read.stale) == (AS_OF + 5, stale)
    both = [snapshot.content.rendering(1, 100, stale=True) for snapshot in (made, read)]
    assert both[0].etag == both[1].etag
    assert both[0].form("identity") == both[1].form("identity")


def test_a_snapshot_from_the_future_has_age_zero() -> None:
    made = Snapshot(KEY, content(1), began=0.0, as_of=AS_OF)
    assert encode.restore(made.dump(), KEY, monotonic=7.0, wall=AS_OF - 3600).began == 7.0


@given(st.binary(max_size=200))
def test_bytes_that_are_no_dump_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode.restore(blob, KEY, monotonic=0.0, wall=0.0)


@given(st.data())
def test_a_dump_cut_short_is_refused(data: st.DataObject) -> None:
    blob = Snapshot(KEY, content(5), began=0.0, as_of=0.0).dump()
    with pytest.raises(ValueError, match=r"."):
        encode.restore(blob[: data.draw(st.integers(0, len(blob) - 1))], KEY, monotonic=0.0, wall=0.0)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (None, None),
        (b"Ann", "Ann"),
        (b'{"name": "Ann", "n": 1}', {"name": "Ann", "n": 1}),
        (b"[1, 2]", [1, 2]),
        (b"17", "17"),
        (b"true", "true"),
        (b'{"broken": ', '{"broken": '),
        (b'{"x": NaN}', '{"x": NaN}'),
        (b'{"x": 1e999}', '{"x": 1e999}'),
        (b'{"x": "\\ud800"}', '{"x": "\\ud800"}'),
        (b"{" + b"\xff" + b"}", r"{\xff}"),
        (b"x" * 1024, "x" * 1024),
        (b"x" * 1025, None),
        (b"[" * 1000, "[" * 1000),
    ],
)
def test_a_profile_is_embedded_as_json_only_if_it_is_an_object_or_array(stored: bytes | None, shown: object) -> None:
    window = Window(Stamp(0.0, AS_OF), 1, [Entry(1, b"ann", 1.0, stored)])
    made = Content.of(WITH_PROFILES, 1, window)
    assert body_of(made, 1, 1)["entries"] == [{"rank": 1, "member": "ann", "score": 1, "profile": shown}]


def test_the_uncached_bodies_have_the_contracts_fields() -> None:
    stamp = Stamp(0.0, AS_OF, stale=True)
    entries = [Entry(2, b"bob", 7.5), Entry(3, "élan/ü".encode(), -1.0)]
    head = {"leaderboard": "downloads", "period": None, "order": "desc", "as_of": "2026-11-26T20:28:00.123Z"}
    member = json.loads(encode.member_body(PLAIN, Standings(stamp, 9, entries[:1], ()), stale=True))
    assert member == head | {"stale": True, "total": 9, "member": "bob", "rank": 2, "score": 7.5}
    batch = json.loads(encode.members_body(PLAIN, Standings(stamp, 9, entries, (b"x",)), stale=False))
    rows = [{"rank": 2, "member": "bob", "score": 7.5}, {"rank": 3, "member": "élan/ü", "score": -1}]
    assert batch == head | {"stale": False, "total": 9, "entries": rows, "missing": ["x"]}
    window = json.loads(encode.window_body(PLAIN, Window(stamp, 9, entries), stale=False))
    assert window == head | {"stale": False, "total": 9, "entries": rows}


def test_a_board_with_profiles_has_one_in_every_row_of_every_answer_and_null_where_there_is_none() -> None:
    stamp = Stamp(0.0, AS_OF)
    entries = [Entry(1, b"ann", 2.0, b'{"name":"Ann"}'), Entry(2, b"bob", 1.0)]
    shown = [{"name": "Ann"}, None]
    bodies = [
        encode.window_body(WITH_PROFILES, Window(stamp, 2, entries), stale=False),
        encode.members_body(WITH_PROFILES, Standings(stamp, 2, entries, ()), stale=False),
        Content.of(WITH_PROFILES, 1, Window(stamp, 2, entries)).rendering(1, 2, stale=False).form("identity"),
    ]
    for body in bodies:
        assert [row["profile"] for row in json.loads(body)["entries"]] == shown
    for entry, profile in zip(entries, shown, strict=True):
        body = encode.member_body(WITH_PROFILES, Standings(stamp, 2, [entry], ()), stale=False)
        assert json.loads(body)["profile"] == profile
        assert "profile" not in json.loads(encode.member_body(PLAIN, Standings(stamp, 2, [entry], ()), stale=False))


def test_the_boards_own_body_tells_its_period_and_bound() -> None:
    period = Period("weekly", "2026-W12", 1773619200.0, 1774224000.0, "2026-W12", "2026-W11")
    target = Target(PLAIN.board, "downloads", b"lb", period=period)
    snapshot = Snapshot(KEY, content(1, target), began=0.0, as_of=AS_OF)
    body = json.loads(encode.board_rendering(target, snapshot, stale=False, bound_s=26.70001).form("identity"))
    assert body == {
        "leaderboard": "downloads",
        "order": "desc",
        "ties": "ordinal",
        "as_of": "2026-11-26T20:28:00.123Z",
        "stale": False,
        "total": 15_000,
        "staleness_bound_s": 26.7,
        "period": {
            "kind": "weekly",
            "label": "2026-W12",
            "start": "2026-03-16T00:00:00Z",
            "end": "2026-03-23T00:00:00Z",
            "previous": "2026-W11",
        },
    }


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.floats(allow_nan=False)), max_size=20))
def test_rows_read_back_as_the_entries_they_were_made_of(pairs: list[tuple[bytes, float]]) -> None:
    entries = [Entry(n, member, score) for n, (member, score) in enumerate(pairs, 1)]
    made = Content.of(PLAIN, 1, Window(Stamp(0.0, AS_OF), len(entries), entries))
    read = encode.read_back(made)
    assert [text for text, _ in read] == [jsontext.text_of(member) for member, _ in pairs]
    assert [struct.pack("d", entry.score + 0.0) for _, entry in read] == [struct.pack("d", s + 0.0) for _, s in pairs]
