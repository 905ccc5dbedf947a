"""The gateway, with longer patience at its start and at its end than it comes with: ``--build`` names its ``build``.

For tests of what is restored and what is saved. A start goes on without boards that are not back after a second, and
a stop without those that are not saved by then; a busy machine stops a process for longer than that.
"""

from __future__ import annotations

from gateway import app, starting
from gateway.counters import Counters
from gateway.lastknown import keeper
from gateway.server import worker
from gateway.settings import Settings


def build(settings: Settings, *, counters: Counters) -> app.Gateway:
    starting.PATIENCE_S = keeper.RESTORE_WAIT_S = 30.0
    app.STOP_SAVE_S = 3.0
    vars(worker)["STOP_S"] = 4.0  # the parent kills a worker that takes 4.9 s in all
    return app.build(settings, counters=counters)
