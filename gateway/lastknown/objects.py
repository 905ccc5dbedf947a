"""A folder or an S3 bucket as a store, through obstore.

Knows: obstore, and the files of ``blobs``.
Must not know: which boards there are, what a blob means.

A folder's file is written beside and renamed, so a process killed at any moment leaves the former file or the new one.
What such a process was writing stays behind as ``name#1`` and is removed when the folder is next opened.

obstore's blocking calls run in threads of ours. Its own asynchronous ones touch Python objects from threads that may
still do so while the interpreter ends: one process in twelve then aborts instead of exiting (seen with 0.8 and 0.12).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store

from gateway.clock import Clock
from gateway.lastknown.blobs import SUFFIX, pack, path_of, unpack
from gateway.lastknown.store import Kept, Name, Shelf, StoreError, is_young

log = logging.getLogger(__name__)

T = TypeVar("T")
Objects = LocalStore | MemoryStore | S3Store

_LEFT_BEHIND_S = 3600.0
"""How old an unfinished file must be before it is nobody's: no write takes an hour."""
_TOLD_LIMIT = 1000
_AT_ONCE = 8
_THREADS = 64
"""How many operations may be under way: a folder on a dead server keeps its threads for as long as it hangs."""
_CLOSE_WAIT_S = 0.5


class ObjectStore:
    """Blobs as objects. ``connect`` makes the client on first use, since a folder may not be there yet.

    ``timeout_s`` bounds each operation.
    """

    def __init__(self, connect: Callable[[], Objects], *, clock: Clock, timeout_s: float) -> None:
        self._connect = connect
        self._clock = clock
        self._timeout_s = timeout_s
        self._client: Objects | None = None
        self._connecting = threading.Lock()
        self._running: set[asyncio.Future[Any]] = set()
        self._told: set[str] = set()

    async def put(self, name: Name, blob: bytes, as_of: float, *, unless_since: float | None = None) -> bool:
        """Keep a blob, atomically. What is kept is looked at first; another writer may still come between."""
        kept = await self.get(name)
        since = as_of if unless_since is None else unless_since
        if kept is not None and is_young(kept.as_of, since, self._clock.wall()):
            return False
        data, path = pack(name, blob, as_of), path_of(name)
        await self._bounded(lambda client: client.put(path, data))
        return True

    async def get(self, name: Name) -> Kept | None:
        """Return what the name's file holds, if it is whole and of this name."""
        path = path_of(name)
        found = self._read(path, await self._fetch(path))
        if found is None:
            return None
        if found[0] != name:
            self._tell(path, "is of another board")
            return None
        return found[1]

    async def entries(self, shelf: Shelf) -> Sequence[tuple[Name, float]]:
        """Return all names on a shelf, by reading each file."""
        listed = await self._bounded(lambda client: client.list(shelf).collect())
        paths = [meta["path"] for meta in listed if meta["path"].endswith(SUFFIX)]
        found = []
        for start in range(0, len(paths), _AT_ONCE):
            batch = paths[start : start + _AT_ONCE]
            files = await asyncio.gather(*map(self._fetch, batch))
            entries = [self._read(path, data) for path, data in zip(batch, files, strict=True)]
            found += [(entry[0], entry[1].as_of) for entry in entries if entry is not None]
        return found

    async def delete(self, name: Name) -> None:
        """Remove the name's file."""
        try:
            await self._bounded(lambda client: client.delete(path_of(name)))
        except _Missing:
            return

    async def close(self) -> None:
        """Wait a moment for what is under way, and drop the client; its connections go with it."""
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_WAIT_S)
        self._client = None

    async def _fetch(self, path: str) -> bytes | None:
        try:
            return await self._bounded(lambda client: bytes(client.get(path).bytes()))
        except _Missing:
            return None

    async def _bounded(self, operation: Callable[[Objects], T]) -> T:
        """Run one operation; the one place where obstore's errors become ours."""
        if len(self._running) >= _THREADS:
            raise StoreError(f"{_THREADS} earlier operations have not come back yet")
        running = _aside(lambda: operation(self._connected()))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        # It counts as under way until its thread is back, whoever has stopped waiting.
        done, _ = await asyncio.wait({running}, timeout=self._timeout_s)
        if not done:
            raise StoreError(f"no answer within {self._timeout_s:g} s")
        try:
            return running.result()
        except FileNotFoundError as error:
            raise _Missing(_first_line(error)) from error
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(_first_line(error)) from error

    def _connected(self) -> Objects:
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _read(self, path: str, data: bytes | None) -> tuple[Name, Kept] | None:
        if data is None:
            return None
        found = unpack(data)
        if found is None:
            self._tell(path, "is torn or not a gateway's")
        return found

    def _tell(self, path: str, what: str) -> None:
        """Warn of a file once; the set is bounded, so a folder full of foreign files cannot fill the memory."""
        if path not in self._told and len(self._told) < _TOLD_LIMIT:
            self._told.add(path)
            log.warning("last known store: %s %s; it is ignored", path, what)


class _Missing(StoreError):
    """There is no such object."""


def _aside(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a blocking function in a thread that nobody waits for at exit: a folder on a dead server may hang in it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(_retrieved)

    def run() -> None:
        try:
            hand_over: Callable[[], None] = partial(done.set_result, function())
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            hand_over = partial(done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
            loop.call_soon_threadsafe(hand_over)

    threading.Thread(target=run, name="last-known-store", daemon=True).start()
    return done


def _retrieved(future: asyncio.Future[T]) -> None:
    """Look at a result's error, so that one which nobody waited for any more is not told of as never retrieved."""
    if not future.cancelled():
        future.exception()


def _first_line(error: Exception) -> str:
    """Return an obstore error's first line: what follows is its Rust structure, or a page of XML."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def folder(path: Path, clock: Clock) -> LocalStore:
    """Open a folder, made if it is missing, and remove what killed processes were writing."""
    store = LocalStore(path, mkdir=True)
    for unfinished in path.glob(f"*/*{SUFFIX}#*"):
        with contextlib.suppress(OSError):  # another instance was quicker, or it is somebody else's
            if clock.wall() - unfinished.stat().st_mtime > _LEFT_BEHIND_S:
                unfinished.unlink()
    return store
