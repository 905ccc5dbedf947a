"""Edges that pull: few connections, many boards, and every copy expiring at the same moment.

Knows: the gateway's routes, validators, when copies expire.
Must not know: how the gateway is set up, or what answers behind it.

Each ``BURST_S`` (a board's ``edge_ttl_s``) every edge asks for every board at once, half of the times with the
validator it holds. What it shows: a storm of expiries costs one Redis read a board, and is over in a fraction of a
second.

    locust -f loadtests/cdn_pull.py --headless --host http://gateway:8080 --rate 200
"""

from __future__ import annotations

from typing import ClassVar

from loadtests import reads
from loadtests.arrival_user import ArrivalUser
from loadtests.suite import Suite
from loadtests.verdict import Claim

BURST_S = 5.0


class Edges(ArrivalUser):
    """The edges of a content network, seen from their origin."""

    suite = Suite(
        "cdn_pull",
        Claim(rate=200, p99_ms={reads.TOP: 500.0, reads.TOP_CONDITIONAL: 500.0}),
        connections=16,
        seconds=30,
    )
    weights: ClassVar = {reads.TOP: 50, reads.TOP_CONDITIONAL: 50}
    boards = None
    burst_s = BURST_S
