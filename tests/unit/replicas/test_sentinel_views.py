"""What one Sentinel says, and which of several is believed."""

from __future__ import annotations

from typing import Any

from gateway.replicas.login import Address
from gateway.replicas.sentinel import View, best_of, view_of


def state(port: int, flags: str = "slave", **more: Any) -> dict[str, Any]:
    return {"ip": "10.0.0.1", "port": port, "flags": flags, "role-reported": "slave", **more}


AT = ("10.0.0.1", 1)
PRIMARY = {"ip": "10.0.0.1", "port": 1, "flags": "master", "config-epoch": 7}


def ports(view: View) -> list[int]:
    return [address.port for address in view.replicas]


def test_replicas_that_the_sentinel_cannot_reach_are_left_out() -> None:
    down = [state(3, "slave,s_down"), state(4, "s_down,slave,disconnected"), state(5, "slave,disconnected")]
    assert ports(view_of(AT, PRIMARY, [state(2), *down])) == [2]


def test_a_replica_whose_link_is_down_since_the_primary_died_is_still_read() -> None:
    replicas = [state(2, **{"master-link-status": "err"}), state(3, **{"master-link-status": "err"})]
    assert ports(view_of(AT, PRIMARY | {"flags": "master,s_down,o_down"}, replicas)) == [2, 3]


def test_where_the_sentinel_can_reach_none_all_are_given_since_its_own_network_may_be_broken() -> None:
    assert ports(view_of(AT, PRIMARY, [state(2, "slave,s_down"), state(3, "slave,o_down,s_down")])) == [2, 3]


def test_a_node_that_still_calls_itself_primary_is_no_replica() -> None:
    returned = state(3) | {"role-reported": "master"}
    assert ports(view_of(AT, PRIMARY, [state(2), returned])) == [2]


def test_the_primary_is_never_among_its_replicas() -> None:
    assert ports(view_of(AT, PRIMARY, [state(1), state(2)])) == [2]


def test_in_the_middle_of_a_failover_the_promoted_node_is_the_primary() -> None:
    view = view_of(("10.0.0.1", 2), PRIMARY, [state(2), state(3)])
    assert (view.epoch, view.primary.port, ports(view)) == (7, 2, [3])


def test_flags_may_come_as_a_set() -> None:
    assert ports(
        view_of(AT, PRIMARY, [state(2) | {"flags": {"slave"}}, state(3) | {"flags": {"slave", "s_down"}}])
    ) == [2]


def test_the_newest_configuration_is_believed_and_then_the_fullest_list() -> None:
    old = View(6, Address("a", 1), (Address("a", 2), Address("a", 3)))
    new = View(7, Address("a", 2), ())
    full = View(7, Address("a", 2), (Address("a", 3),))
    assert best_of([old, None, new, full]) is full
    assert best_of([None, None]) is None
