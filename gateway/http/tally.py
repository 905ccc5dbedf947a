"""Tally: what HTTP counts, with every label value from a set that is written down here.

Knows: routes, outcomes, statuses.
Must not know: how anything is answered, who reads the numbers.
"""

from __future__ import annotations

from typing import Literal

from gateway.counters import Cell, Counters, Durations
from gateway.http.paths import Route
from gateway.model import Kind, Outcome

Label = Literal[Route, "index", "livez", "readyz", "openapi", "unmatched", "refused"]
"""Where a request went: a route, a page, nowhere (404 before any route), or not even past the parser."""

CLIENT_CLOSED = "client_closed"
"""In place of a status: the client was gone before the answer was, which is nobody's 5xx."""


class Tally:
    """The counters of reads and of answers.

    Every read that reached the read path counts once, under exactly one outcome; a member who is not on the board was
    read well and is a ``miss``. Every answer counts once, under its status.
    """

    def __init__(self, counters: Counters) -> None:
        self._reads = counters.counter(
            "gateway_reads_total", "Reads by route and by how they ended.", ("route", "outcome")
        )
        self._durations = counters.histogram(
            "gateway_read_duration_seconds", "How long reads took, from request to answer.", ("route",)
        )
        self._responses = counters.counter(
            "gateway_responses_total", "Answers by route and status.", ("route", "status")
        )

    def reads(self, route: Kind, outcome: Outcome) -> Cell:
        """Return the box that counts this ending of reads on this route."""
        return self._reads.cell(route, outcome)

    def durations(self, route: Kind) -> Durations:
        """Return the series of a route's read times."""
        return self._durations.durations(route)

    def responses(self, label: Label, status: str) -> Cell:
        """Return the box that counts answers with this status, or ``CLIENT_CLOSED``."""
        return self._responses.cell(label, status)
