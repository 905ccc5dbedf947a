"""Bound: how old what a client sees can be at most, while the gateway and Redis answer.

Knows: the delays between a score's write and a client's screen, and that they add up.
Must not know: where the numbers come from, and who shows the sum.

Outside the bound: an answer marked stale (it carries its own age), and whatever an edge or a client shows because
the gateway did not answer it (``stale-if-error``). An edge that counts whole seconds, as nginx does, may add one.
"""

from __future__ import annotations

from typing import NamedTuple


class Delays(NamedTuple):
    """Everything that can lie between a write to the primary and a client, in seconds.

    ``lag_s``: how far a replica that is read may be behind (0 for a board read from the primary). ``ttl_s`` and
    ``grace_s``: the snapshot's, after which no reader is served from it. ``load_s``: what one load may take.
    ``edge_ttl_s`` and ``client_ttl_s``: how long each holds an answer. ``stale_while_revalidate_s``: how much
    longer each of the two then serves it.
    """

    lag_s: float
    ttl_s: float
    grace_s: float
    load_s: float
    edge_ttl_s: int = 0
    client_ttl_s: int = 0
    stale_while_revalidate_s: int = 0


def staleness_bound_s(delays: Delays) -> float:
    """Return the published bound: the sum, the stale window counted for the edge and for the client."""
    total = (
        delays.lag_s
        + delays.ttl_s
        + delays.grace_s
        + delays.load_s
        + delays.edge_ttl_s
        + delays.client_ttl_s
        + 2 * delays.stale_while_revalidate_s
    )
    return round(total, 3)
