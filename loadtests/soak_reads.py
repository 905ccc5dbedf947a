"""The load of the soak: tops, ranks that are checked one by one, neighbors, at a rate that leaves room for faults.

Knows: the gateway's routes, how a rank is checked.
Must not know: which faults there are, or when.

``python -m loadtests.soak`` runs it, breaks things meanwhile and judges; on its own it is one more mixed load.
"""

from __future__ import annotations

from typing import ClassVar

from loadtests import reads
from loadtests.arrival_user import ArrivalUser
from loadtests.suite import Suite
from loadtests.verdict import Claim


class SoakReads(ArrivalUser):
    """Half of the reads are of members, since those are what a fault could spoil."""

    suite = Suite("soak_reads", Claim(rate=500), seconds=900, connections=50)
    weights: ClassVar = {reads.TOP: 25, reads.TOP_CONDITIONAL: 25, reads.RANK: 40, reads.NEIGHBORS: 10}
