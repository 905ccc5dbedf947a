"""A durable store in memory for the keeper's tests, held to the contract of the real ones by the integration suite.

Knows: the store's seam.
Must not know: the keeper.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.lastknown.store import Kept, Name, Shelf, StoreError, is_young
from tests.fakes import FakeClock


class FakeStore:
    """Blobs in a dict. ``failing`` makes every call raise; ``hold_s`` makes it take that long."""

    def __init__(self, clock: FakeClock) -> None:
        self.kept: dict[Name, Kept] = {}
        self.puts: list[Name] = []
        self.failing = False
        self.failing_names: set[Name] = set()
        self.hold_s = 0.0
        self.calls = 0
        self._clock = clock

    async def put(self, name: Name, blob: bytes, as_of: float, *, unless_since: float | None = None) -> bool:
        """Keep a blob unless a younger one is kept."""
        await self._call(name)
        kept = self.kept.get(name)
        since = as_of if unless_since is None else unless_since
        if kept is not None and is_young(kept.as_of, since, self._clock.wall()):
            return False
        self.kept[name] = Kept(blob, as_of)
        self.puts.append(name)
        return True

    async def get(self, name: Name) -> Kept | None:
        """Return what is kept."""
        await self._call(name)
        return self.kept.get(name)

    async def entries(self, shelf: Shelf) -> Sequence[tuple[Name, float]]:
        """Return a shelf's names."""
        await self._call(None)
        return [(name, kept.as_of) for name, kept in self.kept.items() if name.shelf == shelf]

    async def delete(self, name: Name) -> None:
        """Forget a name."""
        await self._call(name)
        self.kept.pop(name, None)

    async def close(self) -> None:
        """Nothing is open."""

    async def _call(self, name: Name | None) -> None:
        self.calls += 1
        if self.hold_s:
            await self._clock.sleep(self.hold_s)
        if self.failing or name in self.failing_names:
            raise StoreError("no room")
