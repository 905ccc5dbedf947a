"""A gateway that is killed while it saves: whatever the moment, every last known board is there and whole.

Each round is a whole gateway, parent and worker, as a power cut or the kernel's memory killer ends it: SIGKILL to all
of its processes at once.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from gateway import encode
from gateway.clock import SystemClock
from gateway.fingerprint import FINGERPRINT_BYTES
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import LastKnownStore, Name
from gateway.model import TOP_LIMIT, SnapshotKey
from tests.patience import PatientGateway
from tests.servers import Gateway, RedisServer, eventually
from tests.servers.process import accepts

pytestmark = pytest.mark.timeout(600)  # fifty starts, each of which takes as long as the machine lets it

KILLS = 50
BOARDS = [f"board-{number}" for number in range(12)]
MEMBERS = 100
INTERVAL_S = 0.1
"""The shortest that can be set: a save of every board ten times a second."""
SAVING_S = 0.01
"""About as long as one turn of saving takes from its first board on."""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """At any instant all members of a board have one score, which only grows: a torn or older board shows."""
    with RedisServer() as server:
        _write(server, 1)
        yield server


def _write(redis: RedisServer, score: int) -> None:
    members = [part for number in range(MEMBERS) for part in (score, f"member-{number:03}")]
    for board in BOARDS:
        redis.call("ZADD", f"lb:{board}", *members)


def _writing(redis: RedisServer, over: threading.Event) -> None:
    score = 1
    while not over.wait(0.04):
        score += 1
        _write(redis, score)


def _reading(gateway: Gateway, over: threading.Event) -> None:
    while not over.wait(0.04):
        for board in BOARDS:
            with contextlib.suppress(OSError, http.client.HTTPException):
                gateway.get(f"/v1/leaderboards/{board}/top")


def _await_save(folder: Path) -> None:
    """Return within a millisecond of the first board's save in a turn of saving."""

    def newest() -> int:
        return max((path.stat().st_mtime_ns for path in folder.glob("*.board")), default=0)

    former = newest()
    eventually(lambda: newest() > former, every_s=0.001, what="a board is saved")


@contextlib.contextmanager
def running(work: Callable[..., None], *args: Any) -> Iterator[None]:
    """Let a thread do this work until the block is left."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(*args, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def scores_kept(store: LastKnownStore) -> list[float]:
    """Return the one score of each kept board; fail if a board is lost, torn, partial or of two instants."""
    found = []
    for board in BOARDS:
        kept = await store.get(Name("last", board))
        assert kept is not None, f"{board} was lost"
        key = SnapshotKey(board, None, 1, TOP_LIMIT)
        snapshot = encode.restore(kept.blob[FINGERPRINT_BYTES:], key, monotonic=0.0, wall=kept.as_of)
        entries = [entry for _, entry in encode.read_back(snapshot.content)]
        assert (snapshot.content.total, len(entries)) == (MEMBERS, MEMBERS)
        (score,) = {entry.score for entry in entries}
        found.append(score)
    return found


async def test_a_gateway_killed_at_any_moment_of_saving_leaves_every_board_whole(
    redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifty kills: what is left is read here each time, and by the gateway that starts over it."""
    boards = [{"name": board, "key": f"lb:{board}", "ttl_ms": 100, "grace_ms": 600} for board in BOARDS]
    settings = {
        "redis": {"primary": redis.url},
        "last_known": {"store": f"file://{tmp_path}", "interval_s": INTERVAL_S},
        "leaderboards": boards,
    }
    store = open_store(f"file://{tmp_path}", clock=SystemClock())
    assert store is not None
    dice = random.Random(5)
    former = [0.0] * len(BOARDS)
    with running(_writing, redis), PatientGateway(settings) as gateway:
        eventually(lambda: len(list(tmp_path.glob("last/*.board"))) == len(BOARDS), what="every board is saved once")
        for _ in range(KILLS):
            with running(_reading, gateway):
                _await_save(tmp_path / "last")
                time.sleep(dice.random() * SAVING_S)
                os.killpg(gateway.pid, SIGKILL)
                gateway.kill()
            eventually(lambda: not accepts(gateway.port), what="the worker is gone as well, with what it was writing")
            kept = await scores_kept(store)
            assert all(now >= before for before, now in zip(former, kept, strict=True)), "a board went back in time"
            assert kept != former
            former = kept
            gateway.start()
            assert gateway.metric("gateway_last_known_restores_total", outcome="restored") == len(BOARDS)
        errors = gateway.stop()
    assert "last known store" not in errors
    assert caplog.records == []
