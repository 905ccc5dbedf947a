"""Loading a board: the temporary key, and what remains when something goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError

from gateway.load.board import BATCH_ROWS, LoadFailed, load_board, temporary_key

ROWS = [(b"m%d" % number, float(number)) for number in range(2 * BATCH_ROWS + 1)]


class FakeClient:
    """Answers scripts as told; remembers what was asked."""

    def __init__(self, *swap: object, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.swap, self.fail_at, self.error = swap, fail_at, error
        self.asked: list[tuple[Any, ...]] = []

    def execute_command(self, *args: Any, **_options: Any) -> Any:
        self.asked.append(args)
        if self.error is not None and len(self.asked) == self.fail_at:
            raise self.error
        return list(self.swap) if args[0] == "EVAL" and args[2] == 2 else 1

    def of(self, command: str) -> list[tuple[Any, ...]]:
        return [asked for asked in self.asked if asked[0] == command]


@given(st.binary(max_size=40) | st.text("ab{}:", max_size=12).map(str.encode))
def test_the_temporary_key_shares_the_slot_and_begins_with_the_key(key: bytes) -> None:
    temporary = temporary_key(key)
    assert key_slot(temporary) == key_slot(key)
    assert temporary.startswith(key)
    assert temporary != temporary_key(key)


def test_rows_go_to_the_temporary_key_in_batches_and_one_script_swaps_it_in() -> None:
    client, sizes = FakeClient(b"swapped", 7, 60_000), list[int]()
    loaded = load_board(client, b"lb", ROWS, written=sizes.append)
    assert loaded == (len(ROWS), 7, 60.0)
    assert sizes == [BATCH_ROWS, BATCH_ROWS, 1]
    *writes, swap = client.of("EVAL")
    assert {write[3] for write in writes} == {swap[4]}
    assert swap[3] == b"lb"
    assert [pair for write in writes for pair in zip(write[6::2], write[5::2], strict=True)] == [
        (member, repr(score)) for member, score in ROWS
    ]
    assert not client.of("UNLINK")


def test_a_board_without_expiry_gets_none() -> None:
    assert load_board(FakeClient(b"swapped", 0, -1), b"lb", ROWS).expires_s is None


@pytest.mark.parametrize("error", [Disconnected("gone"), ResponseError("OOM"), KeyboardInterrupt()])
def test_whatever_ends_the_writing_the_temporary_key_is_removed_and_nothing_is_swapped(error: BaseException) -> None:
    client = FakeClient(fail_at=2, error=error)
    with pytest.raises(LoadFailed if isinstance(error, Exception) else KeyboardInterrupt):
        load_board(client, b"lb", ROWS)
    assert client.of("UNLINK") == [("UNLINK", client.asked[0][3])]
    assert all(asked[2] == 1 for asked in client.of("EVAL"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ResponseError("NOPERM"), "unchanged"),
        (Disconnected("gone"), "whole or not at all"),
        (KeyboardInterrupt(), "whole or not at all"),
    ],
)
def test_a_failed_swap_says_what_is_known_of_the_board(error: BaseException, says: str) -> None:
    client = FakeClient(fail_at=4, error=error)
    with pytest.raises(LoadFailed, match=says):
        load_board(client, b"lb", ROWS)
    assert client.of("UNLINK")


@pytest.mark.parametrize(("answer", "says"), [((b"wrong_type", b"hash"), "holds a hash"), ((b"lost", 3), "3 left")])
def test_a_refused_swap_is_explained_and_tidied_up(answer: tuple[object, ...], says: str) -> None:
    client = FakeClient(*answer)
    with pytest.raises(LoadFailed, match=says):
        load_board(client, b"lb", ROWS)
    assert client.of("UNLINK")


def test_no_rows_never_replace_a_board() -> None:
    client = FakeClient()
    with pytest.raises(LoadFailed, match="no row"):
        load_board(client, b"lb", [])
    assert not client.asked


def test_a_failing_clean_up_does_not_hide_the_reason() -> None:
    class Gone(FakeClient):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            raise Disconnected("first" if args[0] == "EVAL" else "second")

    with pytest.raises(LoadFailed, match="first"):
        load_board(Gone(), b"lb", ROWS)
