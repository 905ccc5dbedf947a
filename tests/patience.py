"""Gateways and limits for tests in which no time-out and no lag is the point.

Knows: the settings' names, the build with longer patience.
Must not know: what a test wants of Redis, or of the gateway.

A machine that does other things besides may stop one process for two seconds. With the limits that the gateway comes
with, what it stopped is then away or behind, and is not read: answers are stale, come from the primary, or are refused.
That is right, and has tests of its own; everywhere else it would only be a test that fails by itself.
"""

from __future__ import annotations

from tests.servers import Gateway

PATIENT = {"read_timeout_ms": 3_000, "request_budget_ms": 7_000, "max_lag_ms": 60_000}
"""Of the ``[redis]`` table. Longer than any such stop, shorter than a test's own limit: what hangs still fails.
Boards of a gateway need a ``grace_ms`` as long as the budget."""


class PatientGateway(Gateway):
    """A gateway that goes on waiting for its last known boards, at start and at stop, however long they take."""

    options = ("--build", "tests.integration.patient_build:build")
