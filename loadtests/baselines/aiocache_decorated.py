"""The naive handler with aiocache's decorator on the top: the usual next step.

Knows: aiocache.
Must not know: more than the naive handler does.

It still builds the answer's JSON for each request, and concurrent misses each read Redis.
"""

from __future__ import annotations

from typing import Any

from aiocache import cached  # type: ignore[import-untyped]

from loadtests.baselines.naive import Handlers, run

TTL_S = 1


class CachedHandlers(Handlers):
    """The top kept in memory for a second, by board."""

    @cached(ttl=TTL_S, key_builder=lambda _function, _self, board: board)  # type: ignore[untyped-decorator]
    async def read_top(self, board: str) -> dict[str, Any]:
        """Read the top at most once a second, but for concurrent misses."""
        return await super().read_top(board)


if __name__ == "__main__":
    run(CachedHandlers, "the naive handler with a cache decorator")
