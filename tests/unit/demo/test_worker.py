"""What the demo's worker serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import settings
from gateway.counters import Counters
from gateway.demo import board, worker
from gateway.demo.app import DemoApp
from gateway.demo.control import CONTROL_VARIABLE
from gateway.demo.worker import board_reads


async def test_it_is_the_gateway_with_the_demo_around_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(board.settings(host="127.0.0.1", port=8080, admin=9464, primary=1, replicas=[2]))
    monkeypatch.setenv(CONTROL_VARIABLE, str(tmp_path / "control"))
    gateway = worker.build(settings.load(file, {}), counters=Counters())
    assert isinstance(gateway.asgi, DemoApp)
    assert not gateway.draining
    gateway.draining = True
    assert gateway.draining
    assert not gateway.readiness().ready
    await gateway.stop()


def test_reads_of_members_are_not_counted_as_the_board_s() -> None:
    counters = Counters()
    redis = counters.counter("gateway_redis_reads_total", "", ("role", "outcome"))
    reads = counters.counter("gateway_reads_total", "", ("route", "outcome"))
    redis.cell("replica", "ok")[0] = 20
    redis.cell("primary", "failed")[0] = 1
    reads.cell("neighbors", "miss")[0] = 5
    reads.cell("member", "stale")[0] = 3
    reads.cell("top", "miss")[0] = 9
    assert board_reads(counters) == 16
