"""Side by side: several contenders in turn, round after round, so that what disturbs the machine disturbs all alike.

Knows: rounds, medians, ratios.
Must not know: how one reading is taken, or what it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several readings, the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one reading."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Rounds(Generic[T]):
    """Every contender's readings, in the order in which they were taken."""

    readings: Mapping[str, Sequence[T]]

    def spread(self, name: str, value: Callable[[T], float]) -> Spread:
        """Return the spread of one contender's readings."""
        return Spread.of([value(reading) for reading in self.readings[name]])

    def ratio(self, name: str, against: str, value: Callable[[T], float]) -> Spread:
        """Return the spread of ratios **within** rounds: what slowed a whole round down cancels out."""
        pairs = zip(self.readings[name], self.readings[against], strict=True)
        return Spread.of([value(reading) / (value(other) or float("nan")) for reading, other in pairs])


def take_turns(contenders: Mapping[str, Callable[[], T]], rounds: int) -> Rounds[T]:
    """Take ``rounds`` readings of each contender, A B C A B C …"""
    readings: dict[str, list[T]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, take in contenders.items():
            readings[name].append(take())
    return Rounds(readings)
