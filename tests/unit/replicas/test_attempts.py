"""What follows from what happens to an attempt: every row of the table at the top of ``attempts``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.counters import Counters
from gateway.errors import GatewayError, OriginTimeout, OriginUnavailable, Overloaded, WrongType
from gateway.model import Stamp
from gateway.replicas.allowance import LANES
from gateway.replicas.attempts import redirect_of
from gateway.replicas.commands import ASKING, Command, Plain, Script
from gateway.replicas.failures import AttemptTimeout, ConnectionLost, ErrorReply
from gateway.replicas.limits import Limits
from gateway.replicas.login import Address
from gateway.replicas.node import Node, Nodes
from gateway.replicas.reads import ReplicaReads
from gateway.replicas.topology import Redirect, Role, Shard
from tests.fakes import FakeClock, settle
from tests.unit.replicas.stubs import Dialler, StubConnection, make_nodes, node_at

SCRIPT = Script("return 1")
READ = Command(SCRIPT, b"lb:s", (b"ann",))


class StubTopology:
    """One shard, and what it was told."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.redirects: list[Redirect] = []
        self.to: Node | None = None
        self.after: Shard | None = None
        self.troubles = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def for_key(self, key: bytes) -> Shard:
        return self.shard

    def shards(self) -> Sequence[Shard]:
        return (self.shard,)

    def redirected(self, redirect: Redirect) -> Node | None:
        self.redirects.append(redirect)
        self.shard = self.after or self.shard
        return self.to

    def contradicted(self, node: Node, role: Role) -> None: ...

    def troubled(self, node: Node) -> None:
        self.troubles += 1


class Rig:
    """Reads over stub nodes: a primary and some replicas, all in step."""

    def __init__(self, replicas: int = 2, **limits: Any) -> None:
        self.clock, self.counters, self.dialler = FakeClock(), Counters(), Dialler()
        self.nodes: Nodes = make_nodes(self.clock, self.dialler)
        self.primary = self.node(0, "primary")
        self.replicas = [self.node(number, "replica") for number in range(1, replicas + 1)]
        self.topology = StubTopology(self.shard(self.primary, self.replicas))
        self.limits = replace(Limits(), **limits)
        self.reads = ReplicaReads(
            self.topology, self.nodes, self.limits, clock=self.clock, counters=self.counters, random=random.Random(1)
        )

    def node(self, number: int, role: Role) -> Node:
        node = node_at(self.nodes, number)
        node.health.role, node.health.link_up = role, True
        node.health.in_step_at = self.clock.monotonic()
        node.latency_s = 0.001 * (number + 1)  # so that the first replica is the first choice
        return node

    def shard(self, primary: Node | None, replicas: Sequence[Node]) -> Shard:
        now = self.clock.monotonic()
        return Shard(primary, replicas, expects_replicas=bool(replicas), answered_at=now)

    def answers(self, node: Node, *answers: Any) -> StubConnection:
        stub = StubConnection.of(node)
        stub.answers += answers
        return stub

    def reads_total(self, *labels: str) -> int:
        return self.counters.counters["gateway_redis_reads_total"].cells.get(labels, [0])[0]

    async def read(self, **how: Any) -> tuple[Any, Stamp, bool]:
        return await asyncio.wait_for(self.reads.read(READ, lane="member", **how), 30)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_first_answer_is_the_answer_from_a_replica_in_step(rig: Rig) -> None:
    stub = rig.answers(rig.replicas[0], [5])
    reply, stamp, final = await rig.read()
    assert (reply, stamp, final) == ([5], Stamp(rig.clock.now, rig.clock.now_wall), False)
    assert stub.requests == [READ.packed()]
    assert stub.deadlines == [rig.clock.now + 0.2]
    assert rig.reads_total("replica", "ok") == 1


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (AttemptTimeout(), "timeout"),
        (ConnectionLost(), "lost"),
        (ErrorReply("LOADING Redis is loading the dataset in memory"), "refused"),
        (ErrorReply("MASTERDOWN Link with MASTER is down"), "refused"),
        (ErrorReply("BUSY Redis is busy running a script"), "refused"),
        (ErrorReply("CLUSTERDOWN The cluster is down"), "refused"),
        (ErrorReply("NOAUTH Authentication required."), "refused"),
        (ErrorReply("ERR something new"), "refused"),
        (ErrorReply("OOM command not allowed"), "refused"),
        (ErrorReply("MOVED nonsense"), "redirected"),
    ],
)
async def test_one_retry_goes_to_another_node(rig: Rig, failure: Exception, outcome: str) -> None:
    rig.answers(rig.replicas[0], failure)
    rig.answers(rig.replicas[1], [7])
    assert (await rig.read())[0] == [7]
    assert rig.reads_total("replica", outcome) == 1
    assert StubConnection.of(rig.primary).requests == []


@pytest.mark.parametrize("second", [AttemptTimeout(), ConnectionLost(), ErrorReply("ERR x")])
async def test_a_second_failure_is_the_end(rig: Rig, second: Exception) -> None:
    rig.answers(rig.replicas[0], AttemptTimeout())
    rig.answers(rig.replicas[1], second)
    with pytest.raises(OriginUnavailable) as caught:
        await rig.read()
    assert caught.value.__cause__ is second
    assert StubConnection.of(rig.primary).requests == [], "no third attempt"


@pytest.mark.parametrize("code", ["LOADING", "MASTERDOWN", "BUSY", "CLUSTERDOWN", "NOAUTH"])
async def test_a_node_that_says_it_cannot_serve_is_left_alone_for_a_while(rig: Rig, code: str) -> None:
    stub = rig.answers(rig.replicas[0], ErrorReply(f"{code} whatever it says"))
    rig.answers(rig.replicas[1], *[[n] for n in range(10)])
    for _ in range(10):
        await rig.read()
    assert len(stub.requests) == 1
    assert rig.topology.troubles == (code == "CLUSTERDOWN")
    rig.clock.advance(1.5 if code != "NOAUTH" else 2.5)
    for node in rig.replicas:
        node.health.in_step_at = rig.clock.now
    rig.answers(rig.replicas[0], [99])
    assert (await rig.read())[0] == [99]


@pytest.mark.parametrize("text", ["ERR unknown", "NOPERM No permissions to access a key"])
async def test_what_every_node_refuses_is_no_reason_to_leave_one_alone(
    rig: Rig, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.answers(rig.replicas[0], ErrorReply(text), [3])
    rig.answers(rig.replicas[1], ErrorReply(text))
    with pytest.raises(OriginUnavailable):
        await rig.read()
    assert (await rig.read())[0] == [3]
    assert len(caplog.records) == 1, "one line a minute"


@pytest.mark.parametrize("text", ["ERR unknown", "NOPERM this user may not run the 'evalsha' command"])
async def test_a_node_that_refuses_what_another_answers_is_left_alone_for_a_while(rig: Rig, text: str) -> None:
    rig.answers(rig.replicas[0], ErrorReply(text), [99])
    rig.answers(rig.replicas[1], [1], [2])
    assert [(await rig.read())[0] for _ in range(2)] == [[1], [2]]
    assert len(StubConnection.of(rig.replicas[0]).requests) == 1
    rig.clock.advance(2.1)
    for node in rig.replicas:
        node.health.in_step_at = rig.clock.now
    assert (await rig.read())[0] == [99]


async def test_a_cluster_that_is_configured_as_something_else_is_named_once_a_minute(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    moved = ErrorReply("MOVED 3999 10.0.0.9:6379")
    rig.answers(rig.replicas[0], moved, moved)
    rig.answers(rig.replicas[1], moved, moved)
    for _ in range(2):
        with pytest.raises(OriginUnavailable):
            await rig.read()
    (record,) = caplog.records
    assert record.getMessage() == "10.0.0.1:6379 redirects reads (MOVED): see that redis names a Cluster as one"


async def test_noscript_loads_and_repeats_on_the_same_node_without_a_retry(rig: Rig) -> None:
    stub = rig.answers(rig.replicas[0], ErrorReply("NOSCRIPT No matching script."), [3])
    assert (await rig.read())[0] == [3]
    assert stub.requests == [READ.packed(), SCRIPT.load, READ.packed()]
    assert not rig.counters.counters["gateway_redis_retries_total"].cells


async def test_a_node_that_never_keeps_a_script_is_given_up(rig: Rig) -> None:
    rig.answers(rig.replicas[0], *[ErrorReply("NOSCRIPT No matching script.")] * 10)
    rig.answers(rig.replicas[1], [4])
    assert (await rig.read())[0] == [4]
    assert len(StubConnection.of(rig.replicas[0]).requests) < 10


async def test_a_wrong_type_is_final_logged_once_a_minute_and_no_mark_against_the_node(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.answers(rig.replicas[0], *[ErrorReply("WRONGTYPE Operation against a key")] * 5)
    for _ in range(4):
        with pytest.raises(WrongType):
            await rig.read()
    assert len(caplog.records) == 1
    assert StubConnection.of(rig.replicas[1]).requests == []
    assert rig.replicas[0].breaker.failures == 0
    rig.clock.advance(61)
    rig.replicas[0].health.in_step_at = rig.clock.now
    with pytest.raises(WrongType):
        await rig.read()
    assert len(caplog.records) == 2


async def test_a_key_the_account_may_not_read_is_unavailable_and_other_keys_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(replicas=1, primary_fallback=False)
    rig.answers(rig.replicas[0], ErrorReply("NOPERM No permissions to access a key"), [5])
    with pytest.raises(OriginUnavailable):
        await rig.read()
    assert len(caplog.records) == 1
    assert (await rig.read())[0] == [5]


async def test_tryagain_is_tried_again_on_the_same_node_after_a_pause() -> None:
    rig = Rig(replicas=0)
    rig.answers(rig.primary, ErrorReply("TRYAGAIN Multiple keys request during rehashing"), [6])
    reading = asyncio.ensure_future(rig.read())
    await rig.clock.elapse(0.02)
    assert (await reading)[0] == [6]


async def test_moved_goes_to_a_replica_of_the_slots_new_shard(rig: Rig) -> None:
    owner, follower = rig.node(7, "primary"), rig.node(8, "replica")
    rig.topology.to, rig.topology.after = owner, rig.shard(owner, [follower])
    rig.answers(rig.replicas[0], ErrorReply("MOVED 3999 10.0.0.7:6379"))
    rig.answers(follower, [8])
    reply, stamp, final = await rig.read()
    assert (reply, stamp.stale, final) == ([8], False, False)
    assert rig.topology.redirects == [Redirect("MOVED", 3999, Address("10.0.0.7", 6379))]
    assert not rig.counters.counters["gateway_redis_retries_total"].cells


async def test_moved_in_a_shard_that_stays_goes_to_the_node_named(rig: Rig) -> None:
    rig.topology.to = rig.primary
    rig.answers(rig.replicas[0], ErrorReply("MOVED 3999 10.0.0.0:6379"))
    rig.answers(rig.primary, [9])
    reply, _, final = await rig.read()
    assert (reply, final) == ([9], True)


async def test_ask_goes_to_the_importing_node_behind_asking_and_a_script_of_its_own(rig: Rig) -> None:
    importer = rig.node(7, "primary")
    rig.topology.to = importer
    rig.answers(rig.primary, ErrorReply("ASK 3999 10.0.0.7:6379"))
    stub = rig.answers(importer, [10])
    reply, _, final = await rig.read(primary=True)
    assert (reply, final) == ([10], True)
    assert stub.requests == [SCRIPT.load, ASKING, READ.packed()]


async def test_redirects_in_circles_end(rig: Rig) -> None:
    rig.topology.to = rig.primary
    rig.answers(rig.replicas[0], *[ErrorReply("MOVED 1 10.0.0.0:6379")] * 9)
    rig.answers(rig.primary, *[ErrorReply("MOVED 1 10.0.0.0:6379")] * 9)
    rig.answers(rig.replicas[1], *[ErrorReply("MOVED 1 10.0.0.0:6379")] * 9)
    with pytest.raises(OriginUnavailable):
        await rig.read()
    assert len(StubConnection.of(rig.primary).requests) <= 4


@pytest.mark.parametrize(
    ("text", "redirect"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirect("MOVED", 3999, Address("127.0.0.1", 6381))),
        ("ASK 0 [::1]:7000", Redirect("ASK", 0, Address("::1", 7000))),
        ("MOVED 5 ::1:7000", Redirect("MOVED", 5, Address("::1", 7000))),
        ("MOVED 5 :7000", Redirect("MOVED", 5, Address("10.0.0.0", 7000))),
        ("MOVED", None),
        ("MOVED x 127.0.0.1:1", None),
        ("MOVED 1 127.0.0.1", None),
    ],
)
async def test_a_redirect_is_a_slot_and_an_address(rig: Rig, text: str, redirect: Redirect | None) -> None:
    assert redirect_of(ErrorReply(text), rig.primary) == redirect


async def test_with_no_replica_in_step_the_primary_is_read_as_often_as_allowed_and_then_503(rig: Rig) -> None:
    for node in rig.replicas:
        node.ready.clear()
    rig.answers(rig.primary, *[[n] for n in range(1000)])
    assert (await rig.read())[2]
    for _ in range(39):
        await rig.read()
    with pytest.raises(Overloaded):
        await rig.read()
    for _ in range(10):
        await rig.reads.read(READ, lane="snapshot")  # the rest is theirs
    with pytest.raises(Overloaded):
        await rig.reads.read(READ, lane="snapshot")
    rig.clock.advance(0.031)
    for _ in range(5):
        await rig.read()


async def test_beyond_the_allowance_a_replica_that_lags_is_read_with_the_mark() -> None:
    rig = Rig(primary_max_reads_per_s=0)
    rig.clock.advance(5.0)
    rig.answers(rig.replicas[0], [1])
    reply, stamp, final = await rig.read()
    assert (reply, final) == ([1], False)
    assert stamp == Stamp(rig.clock.now, rig.clock.now_wall - 5.0, stale=True)


async def test_without_fallback_the_primary_is_never_read(rig: Rig) -> None:
    rig = Rig(primary_fallback=False)
    for node in rig.replicas:
        node.ready.clear()
    with pytest.raises(OriginUnavailable):
        await rig.read()
    assert StubConnection.of(rig.primary).requests == []


async def test_a_board_read_from_the_primary_is_read_from_nowhere_else(rig: Rig) -> None:
    rig.answers(rig.primary, [1], AttemptTimeout())
    reply, stamp, final = await rig.read(primary=True)
    assert (reply, stamp.stale, final) == ([1], False, True)
    with pytest.raises(OriginUnavailable):
        await rig.read(primary=True)
    rig.primary.ready.clear()
    with pytest.raises(OriginUnavailable):
        await rig.read(primary=True)
    assert all(StubConnection.of(node).requests == [] for node in rig.replicas)


async def test_where_no_replica_is_configured_the_primary_has_no_limit() -> None:
    rig = Rig(replicas=0, primary_max_reads_per_s=1, primary_fallback=False)
    rig.answers(rig.primary, *[[n] for n in range(200)])
    for _ in range(200):
        assert (await rig.read())[2]
    assert rig.reads_total("primary", "ok") == 200


async def test_a_lost_connection_to_the_only_node_is_retried_once_it_is_open_again() -> None:
    rig = Rig(replicas=0)
    rig.dialler.refuse, rig.dialler.answers = None, [[1]]
    lost = StubConnection.of(rig.primary)
    reading = asyncio.ensure_future(rig.read())
    await settle()
    lost.unanswered[0].set_exception(ConnectionLost())
    rig.primary.connection_lost(rig.primary.ready[0])
    assert (await reading)[0] == [1]
    assert rig.reads_total("primary", "lost") == 1
    await rig.primary.close()


async def test_with_nothing_connected_and_nothing_coming_a_read_fails_at_once(rig: Rig) -> None:
    for node in (rig.primary, *rig.replicas):
        node.ready.clear()
    with pytest.raises(OriginUnavailable):
        await rig.read()
    assert not rig.reads.up()


async def test_the_attempts_of_one_read_share_the_budget(rig: Rig) -> None:
    rig = Rig(read_timeout_s=0.2, request_budget_s=0.25)
    late = StubConnection.of(rig.replicas[0])
    reading = asyncio.ensure_future(rig.read())
    await settle()
    began = rig.clock.now
    assert late.requests
    rig.clock.advance(0.2)
    stub = rig.answers(rig.replicas[1], [2])
    rig.replicas[0].health.in_step_at = rig.replicas[1].health.in_step_at = rig.clock.now
    fail_first(late)
    assert (await reading)[0] == [2]
    assert stub.deadlines == [pytest.approx(began + 0.25)]


def fail_first(stub: StubConnection, error: Exception | None = None) -> None:
    for future in stub.unanswered:
        if not future.done():
            future.set_exception(error or AttemptTimeout())


async def fail_after(rig: Rig, node: Node, seconds: float, error: Exception | None = None) -> None:
    """Let the attempt under way on a node fail so much later; the nodes are as fit as before."""
    await settle()
    assert StubConnection.of(node).unanswered, "it was asked"
    rig.clock.advance(seconds)
    for replica in rig.replicas:
        replica.health.in_step_at = rig.clock.now
    fail_first(StubConnection.of(node), error)
    await settle()


@pytest.mark.parametrize(
    ("attempt_s", "budget_s", "ends_after_s", "error"),
    [
        (0.2, 0.5, [0.2, 0.21], OriginUnavailable),
        (0.2, 0.35, [0.21, 0.15], OriginTimeout),
        (0.5, 0.5, [0.51], OriginTimeout),
    ],
)
async def test_a_read_is_out_of_time_only_when_its_budget_is_used_up(
    attempt_s: float, budget_s: float, ends_after_s: list[float], error: type[GatewayError]
) -> None:
    rig = Rig(read_timeout_s=attempt_s, request_budget_s=budget_s)
    reading = asyncio.ensure_future(rig.read())
    for node, seconds in zip(rig.replicas, ends_after_s, strict=False):
        await fail_after(rig, node, seconds)
    with pytest.raises(error):
        await reading


async def test_one_node_that_hangs_is_unavailable_and_not_out_of_time_with_budget_left() -> None:
    rig = Rig(replicas=0)
    reading = asyncio.ensure_future(rig.read())
    await fail_after(rig, rig.primary, 0.2)
    with pytest.raises(OriginUnavailable) as caught:
        await reading
    assert isinstance(caught.value.__cause__, AttemptTimeout)


@pytest.mark.parametrize("error", [AttemptTimeout(), ConnectionLost()])
async def test_time_in_which_the_process_was_held_up_is_not_taken_from_the_budget(error: Exception) -> None:
    rig = Rig()
    reading = asyncio.ensure_future(rig.read())
    await fail_after(rig, rig.replicas[0], 3.0, error)  # 0.2 s would have been enough to find out
    stub = StubConnection.of(rig.replicas[1])
    assert stub.deadlines == [pytest.approx(rig.clock.now + 0.2)], "there is a retry, with all the time it may have"
    await fail_after(rig, rig.replicas[1], 3.0, error)
    with pytest.raises(OriginUnavailable):
        await reading


async def test_a_read_with_a_smaller_budget_of_its_own_keeps_it(rig: Rig) -> None:
    stub = rig.answers(rig.replicas[0], [1])
    await rig.reads.read(Plain(b"HMGET", b"k", (b"a",)), lane="profiles", within_s=0.05)
    assert stub.deadlines == [rig.clock.now + 0.05]


async def test_retries_end_when_a_tenth_of_all_reads_has_been_retried() -> None:
    rig = Rig()
    rig.answers(rig.replicas[0], *[ErrorReply("ERR x")] * 1000)
    rig.answers(rig.replicas[1], *[ErrorReply("ERR x")] * 1000)
    for _ in range(500):
        with pytest.raises(OriginUnavailable):
            await rig.read()
    retries = rig.counters.counters["gateway_redis_retries_total"].cells
    assert retries["made",][0] <= 61
    assert retries["made",][0] + retries["refused",][0] == 500


async def test_a_lane_that_is_full_refuses_at_once_and_the_others_do_not_notice(rig: Rig) -> None:
    waiting = [asyncio.ensure_future(rig.read()) for _ in range(LANES["member"])]
    await settle()
    with pytest.raises(Overloaded):
        await rig.read()
    other = asyncio.ensure_future(rig.reads.read(READ, lane="neighbors"))
    await settle()
    assert not other.done()
    for task in (*waiting, other):
        task.cancel()
    await asyncio.gather(*waiting, other, return_exceptions=True)
    gauges = rig.counters.gauges
    assert set(gauges["gateway_redis_reads_outstanding"].read().values()) == {0.0}, "nothing leaks"
    assert gauges["gateway_redis_reads_refused"].read()["member",] == 1.0


async def test_reports_name_nodes_for_operators_and_metrics_do_not(rig: Rig) -> None:
    rig.replicas[1].health.link_up = False
    seen = [(one.label, one.address, one.state) for one in rig.reads.nodes()]
    assert seen == [
        ("primary", "10.0.0.0:6379", "up"),
        ("replica-0", "10.0.0.1:6379", "up"),
        ("replica-1", "10.0.0.2:6379", "link_down"),
    ]
    state = rig.counters.gauges["gateway_redis_node_state"].read()
    assert state["0", "replica-1", "link_down"] == 1.0
    assert rig.counters.gauges["gateway_redis_node_lag_seconds"].read()["0", "replica-0"] == 0.0
    assert "10.0.0" not in repr([gauge.read() for gauge in rig.counters.gauges.values()])
    assert rig.reads.up()
