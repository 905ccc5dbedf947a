"""Durable stores for real: a folder, moto's S3 server and PostgreSQL, one contract, and each with its own troubles."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships no stubs
import httpx
import pytest
from obstore.store import LocalStore

from gateway.clock import SystemClock
from gateway.lastknown.blobs import path_of
from gateway.lastknown.opening import open_store
from gateway.lastknown.postgres import TABLE
from gateway.lastknown.store import NEVER, Kept, LastKnownStore, Name, StoreError
from tests.fakes import FakeClock
from tests.servers import Gateway, Postgres, Process, RedisServer, eventually, free_port
from tests.servers.process import accepts
from tests.unit.lastknown.stores import FakeStore

pytestmark = pytest.mark.xdist_group("lastknown")

RACE = Name("last", "race/1 🏁", "2026-W12")
LONG = Name("last", "x" * 128)
OLD = Name("archive", "race/1 🏁", "2026-W11")


class S3Server(Process):
    """moto's S3 server in a process of its own."""

    def __init__(self) -> None:
        super().__init__("moto")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        program = "from moto.server import main; main()"
        self.spawn([sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(self.port)])
        self.wait_until(lambda: accepts(self.port), within_s=60)
        httpx.put(f"{self.url}/boards").raise_for_status()


@pytest.fixture(scope="module")
def aws() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield environment


@pytest.fixture(scope="module")
def s3(aws: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with S3Server() as server:
        aws.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


_opened: list[LastKnownStore] = []


def opened(url: str, *, timeout_s: float = 30.0) -> LastKnownStore:
    """Open a store that is closed when the test ends; a time-out is the point only of tests that give one."""
    store = open_store(url, clock=SystemClock(), timeout_s=timeout_s)
    assert store is not None
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """Close every store that a test opened."""
    yield
    while _opened:
        await _opened.pop().close()


@pytest.fixture(params=["fake", "folder", "s3", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LastKnownStore]:
    if request.param == "fake":
        yield FakeStore(FakeClock(wall=time.time()))
        return
    if request.param == "folder":
        url = f"file://{tmp_path}/some%20where/deep"
    elif request.param == "s3":
        request.getfixturevalue("s3")
        url = f"s3://boards/{tmp_path.name}/prefix"
    else:
        url = request.getfixturevalue("postgres").url
        connection = await asyncpg.connect(url)
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        await connection.close()
    store = opened(url)
    yield store
    await store.close()


async def test_a_store_keeps_what_it_is_given_and_never_goes_back_in_time(store: LastKnownStore) -> None:
    now = time.time()
    assert await store.get(RACE) is None
    assert await store.entries("last") == []
    assert await store.put(RACE, b"\x00first\xff", now - 20)
    assert await store.put(LONG, b"", now - 20)
    assert await store.put(OLD, b"final", now - 20, unless_since=NEVER)
    assert await store.get(RACE) == Kept(b"\x00first\xff", now - 20)
    assert await store.get(LONG) == Kept(b"", now - 20)
    assert not await store.put(RACE, b"same age", now - 20)
    assert not await store.put(RACE, b"older", now - 30)
    assert not await store.put(RACE, b"saved lately", now - 10, unless_since=now - 25)
    assert not await store.put(OLD, b"again", now, unless_since=NEVER)
    assert await store.put(RACE, b"newer", now - 10)
    assert await store.put(RACE, b"much newer", now, unless_since=now - 7.5)
    assert await store.get(RACE) == Kept(b"much newer", now)
    assert await store.get(OLD) == Kept(b"final", now - 20)
    assert sorted(await store.entries("last")) == sorted([(RACE, now), (LONG, now - 20)])
    assert await store.entries("archive") == [(OLD, now - 20)]
    await store.delete(RACE)
    await store.delete(RACE)
    assert await store.get(RACE) is None
    assert await store.get(Name("last", "race/1 🏁")) is None


async def test_a_store_lets_a_blob_from_the_future_be_replaced_unless_it_is_an_archive(store: LastKnownStore) -> None:
    now = time.time()
    await store.put(RACE, b"an hour fast", now + 3600)
    assert await store.put(RACE, b"right", now)
    await store.put(OLD, b"an hour fast", now + 3600)
    assert not await store.put(OLD, b"again", now, unless_since=NEVER)


async def test_two_writers_at_once_leave_one_whole_blob(store: LastKnownStore) -> None:
    now = time.time()
    blobs = [bytes([n]) * 20_000 for n in range(8)]
    puts = (store.put(RACE, blob, now + n / 1000) for n, blob in enumerate(blobs))
    # moto's S3 answers 500 to some writers of one object at once, which real ones do not.
    done = await asyncio.gather(*puts, return_exceptions=True)
    assert any(outcome is True for outcome in done)
    assert all(isinstance(outcome, bool | StoreError) for outcome in done)
    kept = await store.get(RACE)
    assert kept is not None
    assert kept.blob == blobs[round((kept.as_of - now) * 1000)]


async def test_a_store_can_be_used_again_after_closing(store: LastKnownStore) -> None:
    await store.put(RACE, b"kept", time.time())
    await store.close()
    assert (await store.get(RACE) or Kept(b"", 0)).blob == b"kept"


# --- folders ----------------------------------------------------------------------------------------------------------


async def test_torn_foreign_and_renamed_files_are_ignored_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(f"file://{tmp_path}")
    now = time.time()
    await store.put(RACE, b"whole" * 100, now)
    await store.put(LONG, b"other", now)
    race, long = tmp_path / path_of(RACE), tmp_path / path_of(LONG)
    race.write_bytes(race.read_bytes()[:-40])
    long.write_bytes(b"")
    (tmp_path / "last" / "README").write_text("someone's own")
    (tmp_path / path_of(Name("last", "renamed"))).write_bytes(b"LBGW?")
    for _ in range(2):
        assert await store.get(RACE) is None
        assert await store.entries("last") == []
    assert len(caplog.records) == 3
    assert await store.put(RACE, b"new", now - 1)
    (tmp_path / path_of(Name("last", "copied"))).write_bytes(race.read_bytes())
    assert await store.get(Name("last", "copied")) is None
    assert "is of another board" in caplog.text
    assert await store.get(RACE) == Kept(b"new", now - 1)


UNMEASURED = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
"""For processes that are killed, forked or kept from writing: coverage's own files would be in the way."""

SAVE_FOR_EVER = """
import asyncio, os, signal, sys, time
from gateway.clock import SystemClock
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import Name

async def save_for_ever(byte):
    store = open_store(sys.argv[1], clock=SystemClock())
    saved = 0
    while True:
        blob = bytes([byte]) * 200_000
        await asyncio.gather(*(store.put(Name("last", f"b{k}"), blob, time.time()) for k in range(2)))
        saved += 1
        if saved == 1:
            print(os.getpid(), flush=True)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:  # nothing of obstore runs yet, so that forking is safe
    if os.fork() == 0:
        asyncio.run(save_for_ever(int(line)))
"""


async def test_a_process_killed_at_any_moment_of_saving_leaves_every_board_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifty kills at random moments, what is left each time read by another process."""
    url = f"file://{tmp_path}"
    reader = opened(url)
    dice = random.Random(5)
    read = []
    with subprocess.Popen(
        [sys.executable, "-c", SAVE_FOR_EVER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=UNMEASURED,
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for n in range(50):
            print(n, file=nursery.stdin, flush=True)
            saver = int(nursery.stdout.readline())
            time.sleep(dice.random() * 0.03)
            os.kill(saver, signal.SIGKILL)
            kept = [await reader.get(Name("last", f"b{k}")) for k in range(2)]
            whole = [one for one in kept if one is not None]
            assert len(whole) == 2
            assert all(len(one.blob) == 200_000 and len(set(one.blob)) == 1 for one in whole)
            read.append([one.as_of for one in whole])
        nursery.stdin.close()
    assert all(now > before for former, later in pairwise(read) for before, now in zip(former, later, strict=True))
    assert caplog.records == []
    for path in tmp_path.glob("last/*#*"):
        os.utime(path, (0, 0))
    assert await opened(url).get(Name("last", "b0")) is not None
    assert list(tmp_path.glob("last/*#*")) == []


async def test_what_a_killed_process_was_writing_is_removed_once_it_is_an_hour_old(tmp_path: Path) -> None:
    await opened(f"file://{tmp_path}").put(RACE, b"x", time.time())
    old, new = (tmp_path / f"{path_of(RACE)}#{n}" for n in (1, 2))
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (0, 0))
    assert [name for name, _ in await opened(f"file://{tmp_path}").entries("last")] == [RACE]
    assert (old.exists(), new.exists()) == (False, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 256 KiB; without the right to mount one, nothing of that size can be had."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mounted)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        if os.environ.get("CI") == "true":
            pytest.fail("mounting a small file system needs root, and in CI nothing may be missing")
        pytest.skip("mounting a small file system needs root")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


async def test_a_full_disk_keeps_the_former_board_and_works_again_when_there_is_room(small_disk: Path) -> None:
    store = opened(f"file://{small_disk}")
    now = time.time()
    await store.put(RACE, b"former", now)
    (small_disk / "filler").write_bytes(bytes(200 * 1024))
    with pytest.raises(StoreError, match="No space left"):
        await store.put(RACE, os.urandom(100_000), now + 1)
    assert await store.get(RACE) == Kept(b"former", now)
    assert list(small_disk.glob("last/*#*")) == []
    (small_disk / "filler").unlink()
    assert await store.put(RACE, os.urandom(100_000), now + 1)


SAVE_ONCE = """
import asyncio, os, resource, signal, sys, time
from gateway.clock import SystemClock
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import Name, StoreError
import gateway.lastknown.objects  # while it can still be read

url, limit_bytes, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

async def main():
    store = open_store(url, clock=SystemClock())
    try:
        await store.put(Name("last", "race"), b"new" * 1000, time.time())
    except StoreError as error:
        print("failed:", error)
    print(await store.get(Name("last", "race")))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
if user:
    os.setuid(user)
asyncio.run(main())
"""


def saved_by_a_process(folder: Path, *, limit_bytes: int = -1, user: int = 0) -> str:
    """Save once in a process with a limit on file sizes, or as another user; return what it printed."""
    command = [sys.executable, "-c", SAVE_ONCE, f"file://{folder}", str(limit_bytes), str(user)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=UNMEASURED)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_a_write_that_is_cut_short_leaves_the_former_board(tmp_path: Path) -> None:
    await opened(f"file://{tmp_path}").put(Name("last", "race"), b"former", time.time() - 60)
    printed = saved_by_a_process(tmp_path, limit_bytes=1000)
    assert printed.startswith("failed: ")
    assert "b'former'" in printed


async def test_a_folder_that_may_only_be_read_is_an_error_of_the_store_and_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:  # where other users reach it
        folder = Path(name)
        await opened(f"file://{folder}").put(Name("last", "race"), b"former", time.time() - 60)
        for path in (folder, folder / "last"):
            path.chmod(0o555)
        (folder / path_of(Name("last", "race"))).chmod(0o444)
        # Permissions mean nothing to root: it saves as somebody else.
        printed = saved_by_a_process(folder, user=65534 if os.getuid() == 0 else 0)
        for path in (folder, folder / "last"):
            path.chmod(0o755)
    assert printed.startswith("failed: ")
    assert "b'former'" in printed


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = opened(f"file://{tmp_path}/file/deeper")
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.put(RACE, b"x", 1.0)
    (tmp_path / "file").unlink()
    assert await store.put(RACE, b"x", 1.0), "and works once it can be"


async def test_a_folder_that_hangs_is_given_up_after_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr("gateway.lastknown.objects.folder", lambda *_: back.wait(60))
    store = opened(f"file://{tmp_path}", timeout_s=0.05)
    with pytest.raises(StoreError, match=r"no answer within 0\.05 s"):
        await store.get(RACE)
    back.set()


async def test_a_folder_that_hangs_keeps_a_bounded_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr("gateway.lastknown.objects.folder", lambda path, _: back.wait(60) and LocalStore(path))
    store = opened(f"file://{tmp_path}", timeout_s=0.5)
    eventually(lambda: not hanging(), what="what earlier tests left has ended")
    errors = await asyncio.gather(*(store.get(RACE) for _ in range(200)), return_exceptions=True)
    assert all(isinstance(error, StoreError) for error in errors)
    assert hanging() == 64
    assert str(errors[-1]) == "64 earlier operations have not come back yet"
    back.set()
    await store.close()
    assert await eventually_async(lambda n: store.put(RACE, b"x", 1.0 + n)), "and works again"


def hanging() -> int:
    """Return how many operations on folders and buckets this process has under way."""
    return sum(thread.name == "last-known-store" for thread in threading.enumerate())


EXIT_AT_ONCE = """
import asyncio, os, sys, time
from gateway.clock import SystemClock
from gateway.lastknown.opening import open_store
from gateway.lastknown.store import Name
import gateway.lastknown.objects

async def main(folder):
    store = open_store(f"{sys.argv[1]}/{folder}", clock=SystemClock())
    for n in range(3):
        await store.put(Name("last", f"b{n}"), b"x" * 30_000, time.time())
    await store.close()

for n in range(25):  # nothing of obstore runs yet, so that forking is safe
    child = os.fork()
    if not child:
        asyncio.run(main(n))
        sys.exit(0)
    print(os.waitpid(child, 0)[1])
"""


def test_a_process_that_ends_right_after_saving_ends_in_order(tmp_path: Path) -> None:
    """Where a library's own threads touch Python objects, one exit in twelve is an abort: 25 most likely show it."""
    command = [sys.executable, "-c", EXIT_AT_ONCE, f"file://{tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=UNMEASURED)
    assert done.stderr == ""
    assert set(done.stdout.split()) == {"0"}


# --- S3 ---------------------------------------------------------------------------------------------------------------


async def test_an_s3_service_that_refuses_or_is_away_is_an_error_of_the_store(
    s3: S3Server, aws: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError):
        await opened("s3://no-such-bucket/prefix").put(RACE, b"x", 1.0)
    with aws.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        began = time.monotonic()
        with pytest.raises(StoreError):
            await opened("s3://boards", timeout_s=1.0).get(RACE)
        assert time.monotonic() - began < 30, "the library alone would go on for three minutes"
    store = opened("s3://boards/frozen", timeout_s=0.5)
    assert await eventually_async(lambda n: store.put(RACE, b"x", 1.0 + n))
    s3.freeze()
    try:
        with pytest.raises(StoreError):
            await store.put(RACE, b"y", 1000.0)
    finally:
        s3.thaw()
    assert await eventually_async(lambda n: store.put(RACE, b"y", 2000.0 + n))


async def eventually_async(attempt: Callable[[int], Awaitable[bool]]) -> bool:
    """Return what the first attempt brings that does not fail.

    Each is given its number, to be younger than all before it: one that was given up may have been done all the same.
    """
    deadline = time.monotonic() + 30
    for number in count():
        try:
            return await attempt(number)
        except StoreError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    raise AssertionError


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


async def test_instances_that_start_together_make_one_table(postgres: Postgres) -> None:
    connection = await asyncpg.connect(postgres.url)
    await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    for _ in range(5):
        stores = [opened(postgres.url) for _ in range(5)]
        await asyncio.gather(*(store.put(RACE, b"x", 1.0 + n) for n, store in enumerate(stores)))
        assert await connection.fetchval(f"SELECT as_of FROM {TABLE}") == 5.0
        for store in stores:
            await store.close()
        await connection.execute(f"DROP TABLE {TABLE}")
    await connection.close()


async def test_an_account_that_may_not_create_uses_the_table_that_is_there(postgres: Postgres) -> None:
    connection = await asyncpg.connect(postgres.url)
    await connection.execute(f"DROP TABLE IF EXISTS {TABLE}; DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
    url = postgres.url.replace("postgres@", "reader@")
    store = opened(url)
    with pytest.raises(StoreError, match="permission denied"):
        await store.put(RACE, b"x", 1.0)
    owner = opened(postgres.url)
    await owner.put(RACE, b"x", 1.0)
    await connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO reader")
    assert await store.put(RACE, b"y", 2.0)
    assert await store.get(RACE) == Kept(b"y", 2.0)
    await store.close()
    await owner.close()
    await connection.execute(f"DROP OWNED BY reader; DROP ROLE reader; DROP TABLE {TABLE}")
    await connection.close()


async def test_a_postgresql_that_stops_freezes_or_refuses_is_an_error_of_the_store_and_is_found_again() -> None:
    with Postgres() as server:
        store = opened(server.url)
        assert await store.put(RACE, b"x", 1.0)
        with pytest.raises(StoreError, match="does not exist"):
            await opened(server.url.replace("/postgres", "/nowhere").replace("nowhere@", "postgres@")).get(RACE)
        server.signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown
        assert server.popen is not None
        server.popen.wait(30)
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.put(RACE, b"y", 1000.0)
        server.start()
        assert await eventually_async(lambda n: store.put(RACE, b"y", 2000.0 + n))
        server.freeze()
        began = time.monotonic()
        # Its processes that serve a connection each still answer; a new connection needs the frozen one.
        with pytest.raises(StoreError):
            await opened(server.url, timeout_s=0.3).get(RACE)
        assert time.monotonic() - began < 20, "a connection would be waited for a minute"
        server.thaw()
        assert await eventually_async(lambda n: store.put(RACE, b"z", 3000.0 + n))


def test_a_url_of_no_known_store_is_refused() -> None:
    clock = SystemClock()
    assert open_store("none", clock=clock) is None
    for url in ("ftp://x/y", "file://elsewhere/var", "file:///", "s3:///prefix", "/var/lib", ""):
        with pytest.raises(ValueError, match="a store is"):
            open_store(url, clock=clock)
    with pytest.raises(ValueError, match="a store is"):
        open_store("memory://", clock=clock)


@pytest.mark.parametrize("kind", ["s3", "postgresql"])
def test_a_gateway_of_several_workers_is_restarted_in_an_outage_with_what_its_service_kept(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """And goes on serving when that service is away as well. (What a folder keeps has a module of its own.)"""
    server = request.getfixturevalue({"s3": "s3", "postgresql": "postgres"}[kind])
    top = "/v1/leaderboards/race/top"
    with RedisServer() as redis:
        redis.call("ZADD", "lb:race", 1, "ann", 2, "bob")
        settings = {
            "server": {"workers": 2},
            "redis": {"primary": redis.url},
            "last_known": {"store": f"s3://boards/{tmp_path.name}" if kind == "s3" else server.url, "interval_s": 1},
            "leaderboards": [{"name": "race", "key": "lb:race"}],
        }
        with Gateway(settings) as gateway:
            gateway.wait_all_ready()
            fresh = gateway.json(top)
            eventually(lambda: gateway.metric("gateway_last_known_saves_total", outcome="saved") >= 1)
            gateway.stop()
            redis.kill()
            gateway.start()
            gateway.wait_all_ready(status="degraded")
            assert gateway.json(top)["entries"] == fresh["entries"]

            def answers() -> list[Any]:
                """Ask often enough to hear both workers; each read the board first at an instant of its own."""
                return [{**gateway.json(top), "as_of": "some time"} for _ in range(16)]

            past = "what was restored is past its ttl and grace, in both workers"
            eventually(lambda: all(one["stale"] for one in answers()), what=past)
            assert answers() == [fresh | {"stale": True, "as_of": "some time"}] * 16
            server.freeze()
            try:
                assert {gateway.get(top)[0] for _ in range(20)} == {200}
                gateway.stop()
            finally:
                server.thaw()
