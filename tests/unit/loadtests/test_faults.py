"""A soak has had every fault by its fifth minute, and a killed primary by its third."""

from __future__ import annotations

import pytest

from loadtests.faults import Faults
from loadtests.nodes import Nodes
from loadtests.programs import Programs
from loadtests.soak import fault_times, parsed


def rotation(sentinel_port: int) -> list[str]:
    with Programs() as programs:
        nodes = Nodes(primary=None, replicas=[])  # type: ignore[arg-type]  # none runs: only the order is looked at
        faults = Faults(programs, nodes, sentinel_port=sentinel_port)
    return [fault.__name__ for fault in faults.rotation()]


def committed(minutes: float) -> list[str]:
    """Return which faults a soak of so many minutes commits, everything else left as it is."""
    order = rotation(sentinel_port=1)
    times = fault_times(minutes * 60, parsed(["--fixed"]).fault_s)
    return [order[number % len(order)] for number in range(len(times))]


def test_every_fault_comes_within_five_minutes() -> None:
    assert set(committed(5)) == {"kill_primary", "freeze_replica", "failover", "kill_replica"}


@pytest.mark.parametrize("minutes", [3, 4])
def test_a_short_soak_has_killed_a_primary(minutes: float) -> None:
    assert "kill_primary" in committed(minutes)


def test_without_sentinel_no_primary_is_killed_that_nobody_would_replace() -> None:
    assert set(rotation(sentinel_port=0)) == {"freeze_primary", "freeze_replica", "kill_replica"}


def test_faults_leave_time_to_recover_from_the_last() -> None:
    assert fault_times(240, 60) == [30, 90, 150]
    assert fault_times(59, 60) == []
