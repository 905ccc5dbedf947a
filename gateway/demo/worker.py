"""What the demo's worker serves: a gateway like any other, with the demo's page around it.

Knows: the gateway's outside, the counters that tell what polls cost.
Must not know: the page, how Redis is stopped.
"""

from __future__ import annotations

import os
from pathlib import Path

from gateway import app
from gateway.counters import Counters
from gateway.demo.app import DemoApp
from gateway.demo.control import CONTROL_VARIABLE
from gateway.readpath import Readiness
from gateway.settings import Settings

REDIS_READS, READS = "gateway_redis_reads_total", "gateway_reads_total"
_MEMBER_ROUTES = {"member", "neighbors", "members"}


class DemoGateway:
    """A gateway whose answers pass through the demo's application; all else is its own affair."""

    def __init__(self, gateway: app.Gateway, control: Path) -> None:
        self._gateway = gateway
        self.asgi = DemoApp(gateway.asgi, redis_reads=lambda: board_reads(gateway.counters), control=control)
        self.start, self.stop = gateway.start, gateway.stop

    @property
    def draining(self) -> bool:
        """Whether the gateway says that it is not ready."""
        return self._gateway.draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._gateway.draining = value

    def readiness(self) -> Readiness:
        """Say what could be answered now."""
        return self._gateway.readiness()


def build(settings: Settings, *, counters: Counters) -> DemoGateway:
    """Build the gateway of the demo, for ``serve --build gateway.demo.worker:build``."""
    control = Path(os.environ[CONTROL_VARIABLE])  # noqa: TID251 (a worker is told nothing else by the demo's process)
    return DemoGateway(app.build(settings, counters=counters), control)


def board_reads(counters: Counters) -> int:
    """Return the reads sent to Redis for boards: all of them, less those of members, which are never cached."""
    sent = sum(cell[0] for cell in counters.counter(REDIS_READS, "").cells.values())
    members = counters.counter(READS, "").cells.items()
    return sent - sum(cell[0] for (route, outcome), cell in members if outcome == "miss" and route in _MEMBER_ROUTES)
