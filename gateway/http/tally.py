"""Tally: what HTTP counts, with every label value from a set that is written down here.

Knows: routes, outcomes, statuses.
Must not know: how anything is answered, who reads the numbers.
"""

from __future__ import annotations

from typing import Literal, get_args

from gateway.counters import Cell, Counters, Durations
from gateway.errors import RequestError
from gateway.http.paths import Route
from gateway.model import Kind, Outcome

Label = Literal[Route, "index", "livez", "readyz", "openapi", "unmatched", "refused"]
"""Where a request went: a route, a page, nowhere (404 before any route), or not even past the parser."""

CLIENT_CLOSED = 0
"""In place of a status: the client was gone before the answer was, which is nobody's 5xx."""

KINDS: tuple[Kind, ...] = get_args(Kind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Tally:
    """The counters of reads and of answers.

    Every read that reached the read path counts once, under exactly one outcome; a member who is not on the board was
    read well and is a ``miss``. Every answer counts once, under its status.
    """

    def __init__(self, counters: Counters) -> None:
        reads = counters.counter("gateway_reads_total", "Reads by route and by how they ended.", ("route", "outcome"))
        durations = counters.histogram(
            "gateway_read_duration_seconds", "How long reads took, from request to answer.", ("route",)
        )
        self.reads: dict[tuple[Kind, Outcome], Cell] = {
            (kind, outcome): reads.cell(kind, outcome) for kind in KINDS for outcome in OUTCOMES
        }
        """The box that counts this ending of reads of this kind."""
        self.durations: dict[Kind, Durations] = {kind: durations.durations(kind) for kind in KINDS}
        """The read times of a kind."""
        self._responses = counters.counter(
            "gateway_responses_total", "Answers by route and status.", ("route", "status")
        )
        self._cells: dict[tuple[Label, int], Cell] = {}

    def failed(self, kind: Kind, error: BaseException) -> Outcome:
        """Count a read that ended in an error, and return how it is called."""
        # A request's own error was read well: there is no such member, or no such period.
        outcome: Outcome = "miss" if isinstance(error, RequestError) else "failed"
        self.reads[kind, outcome][0] += 1
        return outcome

    def responses(self, label: Label, status: int) -> Cell:
        """Return the box that counts answers with this status; ``CLIENT_CLOSED`` is one."""
        cell = self._cells.get((label, status))
        if cell is None:
            name = "client_closed" if status == CLIENT_CLOSED else str(status)
            cell = self._cells[label, status] = self._responses.cell(label, name)
        return cell
