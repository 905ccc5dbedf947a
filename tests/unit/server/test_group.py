"""The group: workers are replaced, given up, killed, as their parent decides; stand-ins for the processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.readpath import Readiness
from gateway.server import group as group_module
from gateway.server.group import Group
from gateway.server.order import CANNOT_START, Order
from gateway.server.process import WorkerProcess
from gateway.settings import load
from gateway.telemetry import Snapshot

READY = Readiness(ready=True, redis_up=True, fresh=1, last_known=0, missing=0)


class FakeWorker:
    """A worker that does what the test says; ``end`` is its exit."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid = 1000 + index
        self.started = asyncio.Event()
        self.heard_at = 0.0
        self.readiness = READY
        self.told: list[str] = []
        self.obeys = True
        self.metrics: Snapshot = {
            "gateway_x_total": {"help": "x", "labels": [], "how": "add", "samples": [([], [1.0])]},
            "gateway_y": {"help": "y", "labels": [], "how": "sum", "samples": [([], [1.0])]},
        }
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, status: int) -> None:
        if not self._exit.done():
            self._exit.set_result(status)

    async def ended(self) -> int:
        return await asyncio.shield(self._exit)

    async def report(self, within_s: float) -> None:
        self.told.append("report")

    def count(self) -> None:
        self.told.append("count")

    def drain(self) -> None:
        self.told.append("drain")

    def stop(self) -> None:
        self.told.append("stop")
        if self.obeys:
            self.end(0)

    def kill(self) -> None:
        self.told.append("kill")
        self.end(-9)


class Spawner:
    """What stands for ``WorkerProcess.spawn``: it keeps every worker that was made."""

    def __init__(self) -> None:
        self.made: list[FakeWorker] = []
        self.then: Callable[[FakeWorker], None] = lambda worker: worker.started.set()
        self.fails = False

    async def __call__(self, order: Order, listeners: Sequence[socket.socket], clock: object) -> FakeWorker:
        if self.fails:
            raise OSError(11, "Resource temporarily unavailable")
        worker = FakeWorker(order.index)
        self.made.append(worker)
        self.then(worker)
        return worker

    async def until_made(self, count: int) -> None:
        while len(self.made) < count:
            await asyncio.sleep(0)


@pytest.fixture
def spawner(monkeypatch: pytest.MonkeyPatch) -> Spawner:
    made = Spawner()
    monkeypatch.setattr(WorkerProcess, "spawn", made)
    monkeypatch.setattr(group_module, "FIRST_PAUSE_S", 0)
    return made


@pytest.fixture
def group(tmp_path: Path) -> Group:
    path = tmp_path / "gateway.toml"
    path.write_text('[redis]\nprimary = "redis://a"\n[[leaderboards]]\nname = "a"\nkey = "b"\n')
    orders = [Order(index, load(path, {}), "x:y") for index in range(2)]
    return Group(orders, [[], []], SystemClock())


async def test_a_worker_that_ends_is_replaced_by_one_with_its_number(group: Group, spawner: Spawner) -> None:
    group.start()
    await spawner.until_made(2)
    spawner.made[1].end(-9)
    await spawner.until_made(3)
    assert [worker.index for worker in spawner.made] == [0, 1, 1]
    found = await group.snapshots()
    assert found["gateway_x_total"]["samples"] == [([], [3.0])], "what the dead one counted still counts"
    assert found["gateway_y"]["samples"] == [([], [2.0])], "what it held is gone"
    assert found["gateway_worker_restarts_total"]["samples"] == [([], [1.0])]
    assert await group.readiness() == [READY, READY]
    assert await group.stop()


async def test_with_nobody_serving_a_few_failed_starts_end_the_group(group: Group, spawner: Spawner) -> None:
    spawner.then = lambda worker: worker.end(1)
    group.start()
    await asyncio.wait_for(group.given_up(), 30)
    assert group_module.FAILED_STARTS <= len(spawner.made) <= group_module.FAILED_STARTS + 1
    await group.first()
    await group.stop()


async def test_a_start_that_no_try_would_help_is_tried_once_for_each_worker(group: Group, spawner: Spawner) -> None:
    spawner.then = lambda worker: worker.end(CANNOT_START)
    group.start()
    await asyncio.wait_for(group.given_up(), 30)
    assert len(spawner.made) <= 3
    await group.stop()


async def test_a_worker_that_accepted_and_then_could_not_start_is_a_failed_start_too(
    group: Group, spawner: Spawner
) -> None:
    def accept_and_fail(worker: FakeWorker) -> None:
        worker.started.set()
        worker.end(CANNOT_START)

    spawner.then = accept_and_fail
    group.start()
    await asyncio.wait_for(group.given_up(), 30)
    assert len(spawner.made) <= 4
    await group.stop()


async def test_no_process_to_be_had_is_a_failed_start(
    group: Group, spawner: Spawner, caplog: pytest.LogCaptureFixture
) -> None:
    spawner.fails = True
    group.start()
    await asyncio.wait_for(group.given_up(), 30)
    assert "no process can be started: Resource temporarily unavailable" in caplog.text
    assert await group.stop()


async def test_while_one_serves_the_other_may_fail_for_ever(group: Group, spawner: Spawner) -> None:
    spawner.then = lambda worker: worker.started.set() if worker.index == 0 else worker.end(CANNOT_START)
    group.start()
    await spawner.until_made(5)
    assert [worker.index for worker in spawner.made] == [0, 1, 1, 1, 1]
    assert len(group.serving) == 1
    assert await group.stop()


async def test_a_worker_that_has_stopped_answering_is_killed(
    group: Group, spawner: Spawner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_module, "REPORT_EVERY_S", 0)

    def hang_the_first(worker: FakeWorker) -> None:
        worker.started.set()
        worker.heard_at = float("-inf") if len(spawner.made) == 1 else float("inf")

    spawner.then = hang_the_first
    group.start()
    await spawner.until_made(3)
    assert spawner.made[0].told[-1] == "kill"
    assert "a worker does not answer and is killed" in caplog.text
    assert await group.stop()


async def test_a_worker_that_ends_in_the_drain_is_not_replaced(group: Group, spawner: Spawner) -> None:
    group.start()
    await spawner.until_made(2)
    group.drain()
    assert all("drain" in worker.told for worker in spawner.made)
    spawner.made[0].end(1)
    clean = await group.stop()
    assert (len(spawner.made), clean) == (2, False)


async def test_a_worker_that_does_not_stop_is_killed_and_the_end_was_not_clean(
    group: Group, spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "LEAVE_S", 0)
    group.start()
    await spawner.until_made(2)
    spawner.made[0].obeys = False
    assert not await group.stop()
    assert spawner.made[0].told[-2:] == ["stop", "kill"]


async def test_a_worker_that_comes_up_during_the_stop_is_told_at_once(
    group: Group, spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(order: Order, listeners: Sequence[socket.socket], clock: object) -> FakeWorker:
        spawned.set()
        await go_on.wait()
        return await spawner(order, listeners, clock)

    monkeypatch.setattr(WorkerProcess, "spawn", slowly)
    group.start()
    await spawned.wait()
    group.drain()
    stopping = asyncio.create_task(group.stop())
    await asyncio.sleep(0)
    go_on.set()
    assert await stopping
    assert [worker.told for worker in spawner.made] == [["drain", "stop"], ["drain", "stop"]]


async def test_a_group_that_was_never_started_stops(group: Group) -> None:
    assert await group.stop()
