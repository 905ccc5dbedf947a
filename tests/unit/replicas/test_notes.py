"""Log lines about a key come once a minute."""

from __future__ import annotations

from gateway.replicas.notes import Notes
from tests.fakes import FakeClock


def test_a_line_about_a_key_is_due_once_a_minute_and_others_are_due_meanwhile() -> None:
    clock = FakeClock()
    notes = Notes(clock)
    assert [notes.due("WRONGTYPE", b"a"), notes.due("WRONGTYPE", b"a"), notes.due("WRONGTYPE", b"b")] == [1, 0, 1]
    clock.advance(61)
    assert notes.due("WRONGTYPE", b"a")
