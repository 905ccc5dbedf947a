"""Finished periods: archived once they are final, complete, and served once their key is gone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.archive import Archive, ArchiveLimits, ArchiveLoader, name_of
from gateway.boards import Boards
from gateway.counters import Counters
from gateway.encode import Snapshot
from gateway.errors import OriginError, OriginTimeout, OriginUnavailable, Overloaded, WrongType
from gateway.lastknown.store import Kept, Name
from gateway.loader import OriginLoader
from gateway.model import Board, SnapshotKey, Target
from gateway.periods import Season, calendar_for
from tests.fakes import FakeClock, FakeOrigin, settle
from tests.unit.lastknown.stores import FakeStore

MIDNIGHT = datetime(2026, 3, 19, tzinfo=UTC).timestamp()
SEASONS = [Season("spring", "2026-03-01", "2026-03-18"), Season("summer", "2026-06-01", "2026-07-01")]
DAY = Board(name="day", key="lb:day:<period>", calendar=calendar_for("daily"))
BOARDS = (
    DAY,
    Board(name="week", key="lb:week:<period>", calendar=calendar_for("weekly"), settle_s=60.0),
    Board(name="cup", key="lb:cup:<period>", calendar=calendar_for("seasons", seasons=SEASONS)),
    Board(name="ever", key="lb:ever"),
    Board(
        name="clan-<id>",
        key="lb:clan:<id>:<period>",
        placeholders={"id": re.compile("[a-z]+")},
        calendar=calendar_for("daily"),
    ),
)
YESTERDAY = Name("archive", "day", "2026-03-18")


class Instance:
    def __init__(
        self,
        store: FakeStore,
        origin: FakeOrigin,
        *,
        families: bool = False,
        max_lag_s: float = 0.0,
        boards: tuple[Board, ...] = (DAY,),
        held: Iterable[Snapshot] = (),
    ) -> None:
        self.origin = origin
        self.clock = origin.clock
        self.counters = Counters()
        self.boards = Boards(boards)
        self.inner = OriginLoader(origin, self.clock)
        self.archive = Archive(
            store,
            self.inner,
            boards=self.boards,
            snapshots=lambda: held,
            clock=self.clock,
            counters=self.counters,
            random=lambda: 0.5,
            limits=ArchiveLimits(families=families, max_lag_s=max_lag_s),
        )
        self.loader = ArchiveLoader(self.inner, self.archive, self.clock)

    def target(self, name: str, label: str) -> Target:
        return self.boards.resolve(name, label, self.clock.wall())

    async def top(self, name: str, label: str, *, first: int = 1) -> Snapshot:
        target = self.target(name, label)
        return await self.loader.load(target, SnapshotKey(name, label, first, first + 99))

    def outcomes(self) -> dict[str, int]:
        cells = self.counters.counters["gateway_archived_periods_total"].cells
        return {outcome: cell[0] for (outcome,), cell in cells.items()}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall=MIDNIGHT + 599)


@pytest.fixture
def origin(clock: FakeClock) -> FakeOrigin:
    origin = FakeOrigin(clock)
    origin.put(b"lb:day:2026-03-18", {f"m{n}": n for n in range(250)})
    origin.put(b"lb:day:2026-03-19", {"ann": 1})
    return origin


@pytest.fixture
def store(clock: FakeClock) -> FakeStore:
    return FakeStore(clock)


def drop(origin: FakeOrigin) -> None:
    origin.boards.pop(b"lb:day:2026-03-18")


async def test_a_period_is_archived_once_it_is_final_with_its_top_100_and_its_total(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    one = Instance(store, origin)
    await one.archive.archive_final()
    assert store.puts == []
    clock.advance(1)
    await one.archive.archive_final()
    assert store.puts == [YESTERDAY]
    origin.boards.pop(b"lb:day:2026-03-18")
    archived = await one.top("day", "2026-03-18")
    assert (len(archived.content), archived.content.total) == (100, 250)
    assert archived.content.rows.startswith(b'{"rank":1,"member":"m249","score":249}')
    assert one.outcomes() == {"archived": 1, "empty": 8}


async def test_a_period_is_archived_only_when_no_node_in_step_could_lack_a_score(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    one = Instance(store, origin, max_lag_s=2.0)
    clock.advance(2.9)
    await one.archive.archive_final()
    assert store.puts == []
    clock.advance(0.1)
    await one.archive.archive_final()
    assert store.puts == [YESTERDAY]


async def test_a_period_is_archived_once_however_many_instances_and_turns_there_are(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    clock.advance(1)
    several = [Instance(store, origin) for _ in range(3)]
    for _ in range(3):
        for one in several:
            await one.archive.archive_final()
    assert store.puts == [YESTERDAY]
    reads = origin.calls["window"]
    calls = store.calls
    await several[0].archive.archive_final()
    assert (origin.calls["window"], store.calls) == (reads, calls), "and then nobody asks any more"
    origin.put(b"lb:day:2026-03-18", {"late": 1e9})
    await Instance(store, origin).archive.archive_final()
    assert b"late" not in store.kept[YESTERDAY].blob


async def test_the_task_archives_within_two_minutes_of_a_period_being_final(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    one = Instance(store, origin)
    one.archive.start()
    await clock.elapse(121)
    assert store.puts == [YESTERDAY]
    await clock.elapse(86_400)
    assert store.puts == [YESTERDAY, Name("archive", "day", "2026-03-19")]
    await one.archive.stop()
    await one.archive.stop()


async def test_an_instance_that_was_away_archives_what_it_missed(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    for day in range(8, 18):
        origin.put(f"lb:day:2026-03-{day:02}".encode(), {"ann": day})
    clock.advance(1)
    await Instance(store, origin).archive.archive_final()
    assert sorted(name.label for name in store.puts) == [f"2026-03-{day}" for day in range(11, 19)]


async def test_weeks_seasons_and_boards_with_their_own_settling_time_are_archived_too(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    clock.now_wall = datetime(2026, 3, 23, 0, 1, tzinfo=UTC).timestamp()
    origin.put(b"lb:week:2026-W12", {"ann": 1})
    origin.put(b"lb:cup:spring", {"ann": 1})
    origin.put(b"lb:ever", {"ann": 1})
    await Instance(store, origin, boards=BOARDS[1:]).archive.archive_final()
    assert set(store.puts) == {Name("archive", "week", "2026-W12"), Name("archive", "cup", "spring")}


async def test_boards_of_families_are_archived_when_asked_for(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    clock.advance(1)
    for day in (17, 18, 19):
        origin.put(f"lb:clan:red:2026-03-{day}".encode(), {"ann": day})
    plain = Instance(store, origin, boards=BOARDS)
    held = [await plain.top("clan-red", "2026-03-19")]
    await Instance(store, origin, boards=BOARDS[4:], held=held).archive.archive_final()
    assert store.puts == []
    await Instance(store, origin, boards=BOARDS[4:], held=held, families=True).archive.archive_final()
    assert store.puts == [Name("archive", "clan-red", "2026-03-18")]


async def test_what_cannot_be_read_or_kept_is_tried_again_with_one_warning(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, caplog: pytest.LogCaptureFixture
) -> None:
    clock.advance(1)
    one = Instance(store, origin)
    origin.fail()
    await one.archive.archive_final()
    store.failing = True
    await one.archive.archive_final()
    store.failing = False
    assert store.puts == []
    origin.heal()
    origin.stale_since = clock.wall() - 30
    await one.archive.archive_final()
    assert store.puts == [], "no read known to be in step"
    origin.stale_since = None
    await one.archive.archive_final()
    assert store.puts == [YESTERDAY]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a finished period could not be archived, and is tried again",
        "finished periods are archived again",
    ]


async def test_an_unforeseen_error_is_told_with_its_trace_and_ends_nothing(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, caplog: pytest.LogCaptureFixture
) -> None:
    clock.advance(1)
    one = Instance(store, origin)
    origin.fail(ZeroDivisionError(), times=1)
    one.archive.start()
    await clock.elapse(5)
    assert "ZeroDivisionError" in caplog.text
    await clock.elapse(60)
    assert store.puts == [YESTERDAY]
    await one.archive.stop()


async def test_a_key_of_another_type_is_not_asked_for_again(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    clock.advance(1)
    origin.wrong_types.add(b"lb:day:2026-03-18")
    one = Instance(store, origin)
    await one.archive.archive_final()
    reads = origin.calls["window"]
    await one.archive.archive_final()
    assert origin.calls["window"] == reads
    assert one.outcomes()["wrong_type"] == 1
    with pytest.raises(WrongType):
        await one.top("day", "2026-03-18")


async def test_archiving_waits_for_profiles_an_hour_and_then_does_without(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin
) -> None:
    clock.advance(1)
    one = Instance(store, origin, boards=(replace(DAY, profiles="lb:names"),))
    origin.profiles_fail = True
    await one.archive.archive_final()
    clock.advance(3599)
    await one.archive.archive_final()
    assert store.puts == []
    clock.advance(1)
    await one.archive.archive_final()
    assert store.puts == [YESTERDAY]


@pytest.fixture
async def archived(clock: FakeClock, store: FakeStore, origin: FakeOrigin) -> Instance:
    clock.advance(1)
    one = Instance(store, origin)
    await one.archive.archive_final()
    return Instance(store, origin)


async def test_the_origin_answers_for_a_final_period_while_its_key_lives(
    store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    origin.put(b"lb:day:2026-03-18", {"late": 1e9})
    calls = store.calls
    assert b"late" in (await archived.top("day", "2026-03-18")).content.rows
    assert store.calls == calls


async def test_an_archived_period_is_as_fresh_as_one_read_just_now_and_says_when_it_was_read(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    drop(origin)
    clock.advance(40 * 86_400)
    snapshot = await archived.top("day", "2026-03-18")
    assert snapshot.began == clock.monotonic()
    assert snapshot.as_of == MIDNIGHT + 600
    assert not snapshot.stale


async def test_an_archived_period_is_read_from_the_store_once_a_minute(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    drop(origin)
    calls = store.calls
    for _ in range(100):
        await archived.top("day", "2026-03-18")
    assert store.calls == calls + 1
    clock.advance(61)
    await archived.top("day", "2026-03-18")
    assert store.calls == calls + 2


async def test_a_period_with_neither_key_nor_archive_is_empty(store: FakeStore, archived: Instance) -> None:
    assert (await archived.top("day", "2026-01-01")).content.total == 0
    assert (await archived.top("day", "2026-03-18", first=301)).content.total == 250


async def test_ranges_beyond_the_archived_rows_are_empty(
    store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    drop(origin)
    assert (await archived.top("day", "2026-03-18", first=101)).content.total == 0


async def test_a_running_or_not_yet_final_period_never_comes_from_the_archive(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    store.kept[Name("archive", "day", "2026-03-19")] = store.kept[YESTERDAY]
    origin.boards.clear()
    assert (await archived.top("day", "2026-03-19")).content.total == 0
    clock.advance(86_400 - 1)
    assert (await archived.top("day", "2026-03-19")).content.total == 0
    clock.advance(1)
    assert (await archived.top("day", "2026-03-19")).content.total == 250


@pytest.mark.parametrize("error", [OriginTimeout(), Overloaded()])
async def test_a_final_period_is_served_while_no_node_answers_and_nodes_are_asked_once_a_second(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance, error: OriginError
) -> None:
    origin.fail(error)
    for _ in range(20):
        assert (await archived.top("day", "2026-03-18")).content.total == 250
        clock.advance(0.1)
    assert 2 <= origin.calls["window"] - 8 <= 3
    with pytest.raises(type(error)):
        await archived.top("day", "2026-01-01")


async def test_an_origin_that_hangs_does_not_use_up_the_time_there_is_for_the_archive(
    store: FakeStore, origin: FakeOrigin, archived: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.archive._PATIENCE_S", 0.0)
    gate = origin.hold()
    for _ in range(3):
        assert (await archived.top("day", "2026-03-18")).content.total == 250
    await settle()
    assert (origin.calls["window"] - 8, origin.running) == (1, 0), "asked once, and left alone"
    unarchived = asyncio.create_task(archived.top("day", "2026-03-01"))
    leaving = asyncio.create_task(archived.top("day", "2026-03-02"))
    await settle()
    leaving.cancel()
    await settle()
    assert origin.running == 1
    gate.set()
    assert (await unarchived).content.total == 0, "what is not archived is waited for"


async def test_a_store_that_cannot_say_is_no_word_that_there_is_no_archive(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    drop(origin)
    store.failing = True
    with pytest.raises(OriginUnavailable):
        await archived.top("day", "2026-03-18")
    store.failing = False
    store.kept[YESTERDAY] = Kept(b"S9", 0.0)
    with pytest.raises(OriginUnavailable):
        await archived.top("day", "2026-03-18")


async def test_rebuilding_replaces_the_archive_while_the_key_lives_and_shows_within_a_minute(
    clock: FakeClock, store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    kept = dict(origin.boards[b"lb:day:2026-03-18"])
    drop(origin)
    assert (await archived.top("day", "2026-03-18")).content.total == 250
    origin.put(b"lb:day:2026-03-18", {m.decode(): s for m, s in kept.items() if m != b"m249"})
    clock.move_wall(-30)  # another machine's clock
    rebuilding = Instance(store, origin)
    snapshot = await rebuilding.archive.rebuild(rebuilding.target("day", "2026-03-18"))
    assert snapshot.content.total == 249
    drop(origin)
    clock.move_wall(30)
    assert (await rebuilding.top("day", "2026-03-18")).content.total == 249
    clock.advance(61)
    assert (await archived.top("day", "2026-03-18")).content.total == 249


async def test_rebuilding_never_replaces_an_archive_with_nothing(
    store: FakeStore, origin: FakeOrigin, archived: Instance
) -> None:
    drop(origin)
    target = archived.target("day", "2026-03-18")
    before = store.kept[name_of(target)]
    assert (await archived.archive.rebuild(target)).content.total == 0
    assert store.kept[name_of(target)] == before
