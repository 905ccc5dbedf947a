"""Notes: log lines that must not come in floods.

Knows: what was said when.
Must not know: what the lines say.
"""

from __future__ import annotations

from cachetools import TTLCache

from gateway.clock import Clock

PAUSE_S = 60.0
_REMEMBERED = 1024


class Notes:
    """Remember, for a minute, that something about a key was said."""

    def __init__(self, clock: Clock) -> None:
        self._said: TTLCache[tuple[str, bytes], None] = TTLCache(_REMEMBERED, PAUSE_S, timer=clock.monotonic)

    def due(self, what: str, key: bytes) -> bool:
        """Whether to say this about the key now; true once a minute."""
        if (what, key) in self._said:
            return False
        self._said[what, key] = None
        return True
