"""10,000 reads a second at a constant rate: nine in ten ask for the top, the others for ranks and neighbors.

Knows: the gateway's routes, the mix of reads, when each is due.
Must not know: how the gateway is set up, or what answers behind it.

Latencies count from when each request was due. Run it with everything set up by ``make load SCENARIO=mixed_10k``, or
against a gateway of yours, with the rate that you want to be shown:

    locust -f loadtests/mixed_10k.py --headless --host http://gateway:8080 --rate 2000 --processes 2 --users 2
"""

from __future__ import annotations

from typing import ClassVar

from loadtests import reads
from loadtests.arrival_user import ArrivalUser
from loadtests.suite import Suite
from loadtests.verdict import Claim

P99_MS = {reads.TOP: 50.0, reads.TOP_CONDITIONAL: 50.0, reads.RANK: 100.0, reads.NEIGHBORS: 100.0}


class MixedReads(ArrivalUser):
    """Polls of the top, half of them conditional, and reads of single members."""

    suite = Suite("mixed_10k", Claim(rate=10_000, p99_ms=P99_MS))
    weights: ClassVar = {reads.TOP: 45, reads.TOP_CONDITIONAL: 45, reads.RANK: 7, reads.NEIGHBORS: 3}
