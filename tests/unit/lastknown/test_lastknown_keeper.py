"""Saving behind the reads, once per board and interval, and bringing boards back at start."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

import pytest

from gateway.boards import Boards
from gateway.counters import Counters
from gateway.encode import Content, Snapshot
from gateway.lastknown.keeper import Keeper, KeeperLimits
from gateway.lastknown.store import Kept, Name
from gateway.model import TOP_LIMIT, Board, Entry, SnapshotKey, Stamp, Target, Window
from gateway.periods import calendar_for
from tests.fakes import FakeClock, settle
from tests.unit.lastknown.stores import FakeStore

DAILY = calendar_for("daily")
BOARDS = (
    Board(name="race", key="lb:race"),
    Board(name="a/b", key="lb:ab"),
    Board(name="day", key="lb:day:<period>", calendar=DAILY),
    Board(name="clan-<id>", key="lb:clan:<id>", placeholders={"id": re.compile("[a-z]{1,9}")}),
)
RACE = Name("last", "race")


class Instance:
    """One process: what it holds, and its keeper."""

    def __init__(
        self,
        clock: FakeClock,
        store: FakeStore,
        *,
        limits: KeeperLimits | None = None,
        boards: tuple[Board, ...] = BOARDS,
        phase: float = 0.0,
    ) -> None:
        self.clock = clock
        self.held: dict[SnapshotKey, Snapshot] = {}
        self.adopted: dict[str, Snapshot] = {}
        self.counters = Counters()
        self.boards = Boards(boards)
        self.keeper = Keeper(
            store,
            clock=clock,
            counters=self.counters,
            random=lambda: phase,
            snapshots=self.held.values,
            resolve=lambda name, label: self.boards.resolve(name, label, clock.wall()),
            limits=limits or KeeperLimits(),
        )

    def target(self, name: str, label: str | None = None) -> Target:
        return self.boards.resolve(name, label, self.clock.wall())

    def hold(self, name: str, scores: Mapping[str, float], *, label: str | None = None, first: int = 1) -> Snapshot:
        """Hold a snapshot read right now."""
        target = self.target(name, label)
        rows = sorted(((score, member) for member, score in scores.items()), reverse=True)
        entries = [Entry(rank, member.encode(), score) for rank, (score, member) in enumerate(rows, first)]
        stamp = Stamp(self.clock.monotonic(), self.clock.wall())
        content = Content.of(target, first, Window(stamp, len(entries), entries))
        key = SnapshotKey(name, target.label, first, first + TOP_LIMIT - 1)
        snapshot = self.held[key] = Snapshot(key, content, began=stamp.began, as_of=stamp.as_of)
        return snapshot

    def saves(self) -> dict[str, int]:
        cells = self.counters.counters["gateway_last_known_saves_total"].cells
        return {outcome: cell[0] for (outcome,), cell in cells.items()}

    def restores(self) -> dict[str, int]:
        cells = self.counters.counters["gateway_last_known_restores_total"].cells
        return {outcome: cell[0] for (outcome,), cell in cells.items()}

    async def restore(self, *names: str) -> int:
        targets = [self.target(name) for name in names]
        return await self.keeper.restore(
            targets, lambda target, snapshot: self.adopted.update({target.leaderboard: snapshot})
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> FakeStore:
    return FakeStore(clock)


@pytest.fixture
def instance(clock: FakeClock, store: FakeStore) -> Instance:
    return Instance(clock, store)


async def test_a_board_is_saved_every_interval_in_which_it_changed(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    instance.hold("race", {"ann": 1})
    instance.keeper.start()
    await clock.elapse(1)
    assert store.puts == [RACE]
    await clock.elapse(5)
    instance.hold("race", {"ann": 2})
    assert store.puts == [RACE], "not before the interval is over"
    await clock.elapse(5)
    assert store.puts == [RACE, RACE]
    assert b'"score":2' in store.kept[RACE].blob
    await instance.keeper.stop(1)


async def test_a_board_that_did_not_change_is_saved_again_only_to_keep_its_age_about_true(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    instance.keeper.start()
    for _ in range(29):
        instance.hold("race", {"ann": 1})
        await clock.elapse(10)
    assert store.puts == [RACE]
    instance.hold("race", {"ann": 1})
    await clock.elapse(10)
    instance.hold("race", {"ann": 1})
    await clock.elapse(10)
    assert store.puts == [RACE, RACE]
    assert clock.wall() - store.kept[RACE].as_of <= 20
    await instance.keeper.stop(1)


async def test_rows_without_their_names_are_not_saved_over_complete_ones_for_a_while(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    """Names that fail for a moment are no loss; ranks that are five minutes old would be."""
    instance.hold("race", {"ann": 1})
    await instance.keeper.save()
    for _ in range(29):
        clock.advance(10)
        instance.hold("race", {"ann": 2}).short_lived = True
        await instance.keeper.save()
    assert store.puts == [RACE]
    clock.advance(10)
    instance.hold("race", {"ann": 2}).short_lived = True
    await instance.keeper.save()
    assert store.puts == [RACE, RACE]


async def test_a_snapshot_that_was_not_read_again_is_not_looked_at_again(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    instance.hold("race", {"ann": 1})
    await instance.keeper.save()
    calls = store.calls
    await clock.elapse(100_000)
    await instance.keeper.save()
    assert store.calls == calls


async def test_many_instances_save_a_board_once_per_interval(clock: FakeClock, store: FakeStore) -> None:
    instances = [Instance(clock, store, phase=n / 4) for n in range(4)]
    for one in instances:
        one.keeper.start()
    for second in range(100):
        for one in instances:
            one.hold("race", {"ann": second})
        await clock.elapse(1)
    assert 9 <= len(store.puts) <= 14
    assert sum(one.saves()["younger"] for one in instances) >= 26
    assert clock.wall() - store.kept[RACE].as_of <= 12
    for one in instances:
        await one.keeper.stop(1)


async def test_an_older_snapshot_never_replaces_a_younger_one(clock: FakeClock, store: FakeStore) -> None:
    late, early = Instance(clock, store), Instance(clock, store)
    early.hold("race", {"ann": 1})
    clock.advance(1)
    late.hold("race", {"ann": 2})
    await late.keeper.save()
    await early.keeper.save()
    await early.keeper.stop(1)
    assert b'"score":2' in store.kept[RACE].blob
    assert early.saves() == {"saved": 0, "younger": 2, "failed": 0}


async def test_what_was_read_under_a_clock_an_hour_fast_does_not_keep_newer_boards_away(
    clock: FakeClock, store: FakeStore
) -> None:
    fast = Instance(clock, store)
    clock.move_wall(3600)
    fast.hold("race", {"ann": 1})
    await fast.keeper.save()
    clock.move_wall(-3600)
    right = Instance(clock, store)
    right.hold("race", {"ann": 2})
    await right.keeper.save()
    assert b'"score":2' in store.kept[RACE].blob


async def test_a_wall_clock_set_back_does_not_keep_this_process_from_saving(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    instance.hold("race", {"ann": 1})
    await instance.keeper.save()
    clock.advance(100)
    clock.move_wall(-3600)
    instance.hold("race", {"ann": 2})
    await instance.keeper.save()
    assert b'"score":2' in store.kept[RACE].blob


async def test_only_tops_of_configured_boards_are_saved(store: FakeStore, instance: Instance) -> None:
    instance.hold("race", {"ann": 1}, first=101)
    instance.hold("clan-red", {"ann": 1})
    instance.hold("a/b", {"ann": 1})
    await instance.keeper.save()
    assert store.puts == [Name("last", "a/b")]


async def test_boards_of_families_are_saved_and_restored_when_asked_for(clock: FakeClock, store: FakeStore) -> None:
    limits = KeeperLimits(families=True)
    former = Instance(clock, store, limits=limits)
    former.hold("clan-red", {"ann": 1})
    former.hold("race", {"ann": 1})
    await former.keeper.save()
    now = Instance(clock, store, limits=limits)
    assert await now.restore("race") == 2
    assert now.adopted.keys() == {"race", "clan-red"}
    without = Instance(clock, store)
    assert await without.restore("race") == 1


async def test_a_board_that_is_configured_no_more_is_not_saved(clock: FakeClock, store: FakeStore) -> None:
    one = Instance(clock, store)
    one.hold("race", {"ann": 1})
    one.boards = Boards(BOARDS[1:])
    await one.keeper.save()
    assert store.puts == []


async def test_a_period_is_saved_under_its_label_until_it_is_final(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    clock.now_wall = 1_700_006_400.0 - 1  # 2023-11-15T00:00:00Z
    instance.hold("day", {"ann": 1})
    await instance.keeper.save()
    clock.advance(60)
    instance.hold("day", {"ann": 2}, label="2023-11-14")
    instance.hold("day", {"bob": 1})
    await instance.keeper.save()
    assert sorted(name.label for name in store.puts) == ["2023-11-14", "2023-11-14", "2023-11-15"]
    clock.advance(600)
    instance.hold("day", {"ann": 3}, label="2023-11-14")
    await instance.keeper.save()
    assert len(store.puts) == 3


async def test_at_stop_all_that_changed_is_saved_however_lately_another_instance_did(
    clock: FakeClock, store: FakeStore
) -> None:
    other, one = Instance(clock, store), Instance(clock, store)
    other.hold("race", {"ann": 1})
    await other.keeper.save()
    clock.advance(1)
    one.hold("race", {"ann": 2})
    await one.keeper.save()
    assert b'"score":1' in store.kept[RACE].blob
    await one.keeper.stop(1)
    assert b'"score":2' in store.kept[RACE].blob


async def test_stopping_takes_no_longer_than_its_limit(
    clock: FakeClock, store: FakeStore, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.hold("race", {"ann": 1})
    instance.keeper.start()
    store.hold_s = 1e9
    async with asyncio.timeout(30):
        await instance.keeper.stop(0.01)
    assert "not every board was saved" in caplog.text
    await instance.keeper.stop(0.01)  # twice is no error


async def test_a_store_that_fails_is_one_warning_and_one_when_it_works_again(
    clock: FakeClock, store: FakeStore, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    store.failing = True
    for second in range(5):
        instance.hold("race", {"ann": second})
        await instance.keeper.save()
        clock.advance(10)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no room" in caplog.text
    store.failing = False
    for second in range(5, 8):
        instance.hold("race", {"ann": second})
        await instance.keeper.save()
        clock.advance(10)
    assert [record.message for record in caplog.records][1:] == ["last known store works again"]
    assert instance.saves() == {"saved": 3, "younger": 0, "failed": 5}


async def test_a_turn_with_nothing_to_save_does_not_say_that_the_store_works_again(
    store: FakeStore, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    instance.hold("race", {"ann": 1})
    store.failing = True
    await instance.keeper.save()
    instance.held.clear()
    await instance.keeper.save()
    assert len(caplog.records) == 1


async def test_one_board_that_cannot_be_saved_holds_up_no_other(store: FakeStore, instance: Instance) -> None:
    store.failing_names.add(RACE)
    instance.hold("race", {"ann": 1})
    instance.hold("a/b", {"ann": 1})
    await instance.keeper.save()
    assert store.puts == [Name("last", "a/b")]


async def test_a_store_that_is_away_is_not_asked_for_every_board(clock: FakeClock, store: FakeStore) -> None:
    boards = tuple(Board(name=f"b{n}", key=f"lb:{n}") for n in range(100))
    one = Instance(clock, store, boards=boards)
    for board in boards:
        one.hold(board.name, {"ann": 1})
    store.failing = True
    await one.keeper.save()
    assert store.calls == 8
    store.failing = False
    await one.keeper.save()
    assert len(store.puts) == 100


async def test_the_task_goes_on_after_failures(clock: FakeClock, store: FakeStore, instance: Instance) -> None:
    store.failing = True
    instance.hold("race", {"ann": 1})
    instance.keeper.start()
    await clock.elapse(25)
    store.failing = False
    await clock.elapse(10)
    assert store.puts == [RACE]
    await instance.keeper.stop(1)


async def test_an_unforeseen_error_is_told_with_its_trace_and_ends_nothing(
    clock: FakeClock, store: FakeStore, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    broken = instance.hold("race", {"ann": 1})
    broken.content = None  # type: ignore[assignment]  # what no snapshot should be
    instance.keeper.start()
    await clock.elapse(5)
    assert "AttributeError" in caplog.text
    instance.hold("race", {"ann": 1})
    await clock.elapse(10)
    assert store.puts == [RACE]
    await instance.keeper.stop(1)


async def test_a_restored_board_is_the_one_saved_with_its_true_age(clock: FakeClock, store: FakeStore) -> None:
    former = Instance(clock, store)
    saved = former.hold("race", {"ann": 1.5, "bob": -0.0})
    await former.keeper.save()
    clock.advance(100)
    clock.now = 5.0  # another machine's monotonic clock
    now = Instance(clock, store)
    assert await now.restore("race", "a/b") == 1
    restored = now.adopted["race"]
    assert restored.as_of == saved.as_of
    assert restored.began == 5.0 - 100
    one, other = (s.content.rendering(1, 100, stale=True) for s in (saved, restored))
    assert one.form("identity") == other.form("identity")
    assert one.etag == other.etag
    assert now.restores() == {"restored": 1, "none": 1}


async def test_a_board_found_deleted_before_the_outage_does_not_come_back(clock: FakeClock, store: FakeStore) -> None:
    former = Instance(clock, store)
    former.hold("race", {"ann": 1})
    await former.keeper.save()
    clock.advance(60)
    former.hold("race", {})
    await former.keeper.save()
    now = Instance(clock, store)
    await now.restore("race")
    assert now.adopted["race"].content.total == 0
    assert b"ann" not in store.kept[RACE].blob


async def test_a_restored_board_is_not_saved_again_until_it_was_read_again(clock: FakeClock, store: FakeStore) -> None:
    former = Instance(clock, store)
    former.hold("race", {"ann": 1})
    await former.keeper.save()
    now = Instance(clock, store)
    await now.restore("race")
    now.held[now.adopted["race"].key] = now.adopted["race"]
    clock.advance(1000)
    await now.keeper.save(last=True)
    assert store.puts == [RACE]


async def test_what_is_too_old_torn_or_of_another_configuration_is_not_restored(
    clock: FakeClock, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    former = Instance(clock, store)
    for name in ("race", "a/b", "day"):
        former.hold(name, {"ann": 1})
    await former.keeper.save()
    day = former.target("day")
    kept = store.kept[Name("last", "day", day.label or "")]
    store.kept[Name("last", "day", day.label or "")] = Kept(kept.blob[:-1], kept.as_of)
    store.kept[RACE] = Kept(store.kept[RACE].blob, clock.wall() - 86_401)
    now = Instance(clock, store, boards=(BOARDS[0], Board(name="a/b", key="lb:ab", order="asc"), BOARDS[2]))
    assert await now.restore("race", "a/b", "day") == 0
    assert now.restores() == {"too_old": 1, "reconfigured": 1, "unreadable": 1}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_restoring_from_a_store_that_fails_ends_with_the_first_failure(
    clock: FakeClock, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    boards = tuple(Board(name=f"b{n}", key=f"lb:{n}") for n in range(100))
    one = Instance(clock, store, boards=boards)
    store.failing = True
    assert await one.restore(*(board.name for board in boards)) == 0
    await settle()
    assert store.calls <= 8
    assert len(caplog.records) == 1
    families = Instance(clock, store, limits=KeeperLimits(families=True))
    assert await families.restore("race") == 0


async def test_a_period_that_just_ended_comes_back_beside_the_running_one_until_it_is_final(
    clock: FakeClock, store: FakeStore
) -> None:
    clock.now_wall = 1_700_006_400.0 + 300  # five minutes after midnight
    former = Instance(clock, store)
    former.hold("day", {"ann": 1}, label="2023-11-14")
    former.hold("day", {"bob": 1})
    former.hold("day", {"old": 1}, label="2023-11-13")
    await former.keeper.save()
    now = Instance(clock, store)
    adopted: list[str | None] = []
    await now.keeper.restore([now.target("day")], lambda target, _: adopted.append(target.label))
    assert adopted == ["2023-11-15", "2023-11-14"]
    clock.advance(300)
    await now.keeper.restore([now.target("day")], lambda target, _: adopted.append(target.label))
    assert adopted == ["2023-11-15", "2023-11-14", "2023-11-15"]


async def test_a_slow_store_holds_up_a_start_only_for_a_moment_and_brings_boards_back_behind_it(
    clock: FakeClock, store: FakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    former = Instance(clock, store)
    former.hold("race", {"ann": 1})
    await former.keeper.save()
    monkeypatch.setattr("gateway.lastknown.keeper.RESTORE_WAIT_S", 0.001)
    store.hold_s = 60
    now, stopped = Instance(clock, store), Instance(clock, store)
    assert await now.restore("race") == 0
    assert await stopped.restore("race") == 0
    assert len(caplog.records) == 2
    await stopped.keeper.stop(0.01)
    await clock.elapse(60)
    assert now.adopted.keys() == {"race"}
    assert stopped.adopted == {}


async def test_boards_too_old_to_be_served_are_forgotten_in_time(
    clock: FakeClock, store: FakeStore, instance: Instance
) -> None:
    old, archived = Name("last", "gone"), Name("archive", "day", "2020-01-01")
    store.kept[old] = store.kept[archived] = Kept(b"", clock.wall() - 90_000)
    instance.hold("race", {"ann": 1})
    instance.keeper.start()
    await clock.elapse(20)
    assert set(store.kept) == {RACE, archived}
    store.kept[old] = Kept(b"", clock.wall() - 90_000)
    store.failing = True
    await clock.elapse(3700)
    store.failing = False
    await clock.elapse(3700)
    assert old not in store.kept
    await instance.keeper.stop(1)
