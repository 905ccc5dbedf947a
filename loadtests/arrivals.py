"""When each request of a constant arrival rate is due, and which kind of read it is.

Knows: rates, shares of a rate, weights.
Must not know: sockets, clocks, Locust.

Requests are due whether or not earlier ones were answered, and a latency counts from when its request was due.
A pause of the server therefore costs every request that fell into it, instead of hiding them (coordinated omission).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

MIX_PERIOD = 1000
"""Kinds are dealt in hands of this many, so that each hand holds exactly the weights asked for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The share of one generator in a constant rate: every ``of``-th arrival, beginning with number ``share``.

    ``rate`` is arrivals per second over all shares; ``seconds`` is how long they go on. With ``burst``, that many
    arrivals are due at once (edges whose copies expire together), and the rate is kept on average.
    """

    rate: float
    seconds: float
    share: int = 0
    of: int = 1
    burst: int = 1

    def __post_init__(self) -> None:
        """Refuse what would make no schedule."""
        if self.rate <= 0 or self.seconds <= 0 or self.burst < 1 or not 0 <= self.share < self.of:
            raise ValueError(f"no schedule: {self}")

    @property
    def count(self) -> int:
        """How many arrivals this share holds."""
        return len(range(self.share, round(self.rate * self.seconds), self.of))

    def due_at(self, index: int) -> float:
        """Return the second, from the start of the run, at which this share's arrival ``index`` is due."""
        number = index * self.of + self.share
        return (number - number % self.burst) / self.rate

    def due_by(self, elapsed: float) -> int:
        """Return how many of this share's arrivals are due ``elapsed`` seconds after the start."""
        if elapsed < 0:
            return 0
        first_number = int(elapsed * self.rate)
        last_number = first_number - first_number % self.burst + self.burst - 1
        return min(self.count, max(0, (last_number - self.share) // self.of + 1))

    def asked_by_second(self) -> dict[int, int]:
        """Return how many arrivals fall into each whole second of the run."""
        return dict(Counter(int(self.due_at(index)) for index in range(self.count)))


def deal(weights: Mapping[str, float], random: Random, *, period: int = MIX_PERIOD) -> Sequence[str]:
    """Return ``period`` kinds in random order, each as often as its weight says, to be repeated for ever."""
    total = sum(weights.values())
    edges = [round(period * edge / total) for edge in accumulate(weights.values())]
    hand: list[str] = []
    for kind, edge in zip(weights, edges, strict=True):
        hand += [kind] * (edge - len(hand))
    random.shuffle(hand)
    return hand
