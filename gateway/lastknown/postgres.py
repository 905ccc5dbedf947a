"""A PostgreSQL table as a store, through asyncpg.

Knows: one table and a handful of statements.
Must not know: which boards there are, what a blob means.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]  # ships no stubs

from gateway.clock import Clock
from gateway.lastknown.store import CLOCK_SKEW_S, NEVER, SHELVES, Kept, Name, Shelf, StoreError

T = TypeVar("T")

TABLE = "leaderboard_gateway_boards"
CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
  shelf text NOT NULL,
  leaderboard text NOT NULL,
  label text NOT NULL,
  as_of double precision NOT NULL,
  blob bytea NOT NULL,
  PRIMARY KEY (shelf, leaderboard, label)
)"""
# The table's name is a constant of this module; all else is a parameter.
_PUT = f"""
INSERT INTO {TABLE} AS kept (shelf, leaderboard, label, as_of, blob) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (shelf, leaderboard, label) DO UPDATE SET as_of = excluded.as_of, blob = excluded.blob
WHERE kept.as_of < $6 OR kept.as_of > $7"""  # noqa: S608
_GET = f"SELECT blob, as_of FROM {TABLE} WHERE shelf = $1 AND leaderboard = $2 AND label = $3"  # noqa: S608
_ENTRIES = f"SELECT shelf, leaderboard, label, as_of FROM {TABLE} WHERE shelf = $1"  # noqa: S608
_DELETE = f"DELETE FROM {TABLE} WHERE shelf = $1 AND leaderboard = $2 AND label = $3"  # noqa: S608


class PostgresStore:
    """Blobs as rows. Connects on first use; ``timeout_s`` bounds each operation, connecting included."""

    def __init__(self, url: str, *, clock: Clock, timeout_s: float) -> None:
        self._url = url
        self._clock = clock
        self._timeout_s = timeout_s
        self._pool: Any = None
        self._ready = False
        self._opening = asyncio.Lock()

    async def put(self, name: Name, blob: bytes, as_of: float, *, unless_since: float | None = None) -> bool:
        """Keep a blob in one statement: two writers at once leave the younger."""
        since = as_of if unless_since is None else unless_since
        believable = math.inf if since == NEVER else self._clock.wall() + CLOCK_SKEW_S
        status = await self._bounded(lambda pool: pool.execute(_PUT, *name, as_of, blob, since, believable))
        return bool(status == "INSERT 0 1")

    async def get(self, name: Name) -> Kept | None:
        """Return the name's row."""
        row = await self._bounded(lambda pool: pool.fetchrow(_GET, *name))
        return None if row is None else Kept(row["blob"], row["as_of"])

    async def entries(self, shelf: Shelf) -> Sequence[tuple[Name, float]]:
        """Return all names on a shelf."""
        rows = await self._bounded(lambda pool: pool.fetch(_ENTRIES, shelf))
        return [(Name(SHELVES[row["shelf"]], row["leaderboard"], row["label"]), row["as_of"]) for row in rows]

    async def delete(self, name: Name) -> None:
        """Remove the name's row."""
        await self._bounded(lambda pool: pool.execute(_DELETE, *name))

    async def close(self) -> None:
        """Close the connections, at once if the server does not take part."""
        pool, self._pool, self._ready = self._pool, None, False
        if pool is not None:
            pool.terminate()

    async def _bounded(self, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run one statement; the one place where asyncpg's errors become ours."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await operation(await self._open())
        except TimeoutError as error:
            raise StoreError(f"no answer within {self._timeout_s:g} s") from error
        # ValueError: a URL that asyncpg cannot read; InterfaceError: a connection lost between two statements.
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            raise StoreError(f"{type(error).__name__}: {_first_line(error)}") from error

    async def _open(self) -> Any:
        if self._ready:
            return self._pool
        async with self._opening:
            if self._pool is None:
                # No prepared statements: poolers between here and the server share connections among sessions.
                self._pool = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=2, statement_cache_size=0, timeout=self._timeout_s
                )
            if not self._ready:
                await _ensure_table(self._pool)
                self._ready = True
        return self._pool


async def _ensure_table(pool: Any) -> None:
    """Create the table if it is missing, and permitted; where it is there, no right to create is needed."""
    if await pool.fetchval("SELECT to_regclass($1) IS NOT NULL", TABLE):
        return
    try:
        await pool.execute(CREATE)
    except (asyncpg.UniqueViolationError, asyncpg.DuplicateObjectError, asyncpg.DuplicateTableError):
        # 1. two instances find no table; 2. both create it; 3. one of them fails, at the table itself, at the type that
        # comes with it, or in the catalogue's own index. IF NOT EXISTS looks only before it begins.
        return


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
