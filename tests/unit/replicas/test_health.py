"""What is believed of a node: lag by samples, restarts, failovers, and the breaker."""

from __future__ import annotations

import pytest

from gateway.replicas.health import Breaker, Health, History, Replication, replication_of

PRIMARY = (
    b"# Replication\r\nrole:master\r\nconnected_slaves:2\r\nmaster_replid:aaa\r\nmaster_replid2:" + b"0" * 40 + b"\r\n"
    b"master_repl_offset:120\r\nsecond_repl_offset:-1\r\n"
)
REPLICA = (
    b"# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:3\r\n"
    b"master_sync_in_progress:0\r\nslave_repl_offset:100\r\nmaster_replid:bbb\r\nmaster_replid2:aaa\r\n"
    b"master_repl_offset:100\r\nsecond_repl_offset:90\r\n"
)
DOWN = REPLICA.replace(b"status:up", b"status:down\r\nmaster_link_down_since_seconds:7").replace(b"ago:3", b"ago:-1")


def primary(offset: int, replication_id: str = "aaa", **more: object) -> Replication:
    return Replication("primary", replication_id, offset, link_up=True, **more)  # type: ignore[arg-type]


def replica(offset: int, replication_id: str = "aaa", **more: object) -> Replication:
    return Replication("replica", replication_id, offset, **{"link_up": True, **more})  # type: ignore[arg-type]


def observed(health: Health, said: Replication, at: float, history: History, *, primary_answers: bool = True) -> Health:
    known = primary_answers
    health.observe(
        said, at, history, leads=said.role == "primary", primary_answers=primary_answers, primary_known=known
    )
    return health


def test_info_of_a_primary_is_its_offset_and_stream() -> None:
    assert replication_of(PRIMARY) == primary(120)


def test_info_of_a_replica_is_what_it_has_applied_of_which_stream() -> None:
    said = replication_of(REPLICA)
    assert said == replica(100, "bbb", second_id="aaa", second_offset=90, last_heard_s=3.0)


def test_a_replica_without_its_link_says_since_when() -> None:
    said = replication_of(DOWN)
    assert (said.link_up, said.down_since_s, said.last_heard_s) == (False, 7.0, 0.0)


def test_a_reply_that_is_no_replication_info_is_refused() -> None:
    with pytest.raises(ValueError, match="role"):
        replication_of(b"# Server\r\nredis_version:7.0.15\r\n")


def test_lag_is_the_age_of_the_newest_sample_that_the_replica_has_passed() -> None:
    history, health = History(), Health()
    for at, offset in ((10.0, 100), (11.0, 200), (12.0, 300)):
        history.note("aaa", offset, at)
    observed(health, replica(250), 12.0, history)
    assert health.lag_s(12.0) == 1.0
    assert health.lag_s(15.0) == 4.0, "it grows by itself"


def test_an_idle_stream_counts_as_followed_until_its_newest_sample() -> None:
    history, health = History(), Health()
    for at in (10.0, 11.0, 12.0):
        history.note("aaa", 100, at)
    assert observed(health, replica(100), 12.0, history).in_step_at == 12.0


def test_a_replica_behind_every_sample_is_not_known_to_be_in_step() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    assert observed(health, replica(50), 10.0, history).known_at is None


def test_what_was_proven_once_stays_so_when_a_replica_stops_moving() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    observed(health, replica(100), 10.0, history)
    for at in range(11, 3000):
        history.note("aaa", 100 + at, float(at))  # more samples than are kept
    observed(health, replica(100), 3000.0, history)
    assert health.in_step_at == 10.0


def test_a_replica_restarted_empty_is_not_believed_while_no_primary_answers() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    observed(health, replica(100), 10.0, history)
    observed(health, replica(1, "fresh", link_up=False), 12.0, history, primary_answers=False)
    assert health.known_at is None


def test_a_replica_restarted_with_an_old_file_is_as_old_as_its_file() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    history.note("aaa", 200, 11.0)
    observed(health, replica(200), 11.0, history)
    observed(health, replica(150, link_up=False), 13.0, history, primary_answers=False)
    assert health.in_step_at == 10.0


def test_a_replica_that_syncs_holds_old_data_and_counts_as_without_link() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    assert not observed(health, replica(100, syncing=True), 10.0, history).link_up


def test_after_a_failover_the_old_streams_samples_prove_what_the_new_one_continues() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    history.note("aaa", 200, 11.0)
    observed(health, replica(200), 11.0, history)
    promoted = replica(230, "bbb", second_id="aaa", second_offset=201)
    assert observed(health, promoted, 13.0, history).in_step_at == 11.0
    history.note("bbb", 230, 13.0)
    assert observed(health, promoted, 13.5, history).in_step_at == 13.0


def test_a_replica_promoted_under_our_eyes_is_known_up_to_that_moment_and_one_restarted_empty_is_not() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 1.0)
    observed(health, replica(100), 2.0, history)
    observed(health, primary(101, "bbb", second_id="aaa", second_offset=101), 3.0, history)
    observed(health, primary(130, "bbb", second_id="aaa", second_offset=101), 4.0, history)
    assert (health.promoted_at, health.known_at) == (1.0, 1.0)
    observed(health, replica(140, "bbb"), 5.0, history)
    assert health.promoted_at is None
    observed(health, primary(0, "ccc"), 6.0, history)
    assert health.promoted_at is None


def test_beyond_the_point_where_a_stream_ended_it_proves_nothing() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    history.note("aaa", 300, 12.0)  # the old primary went on alone
    said = replica(400, "bbb", second_id="aaa", second_offset=150)
    assert observed(health, said, 12.0, history, primary_answers=False).in_step_at == 10.0


def test_a_replica_that_left_our_stream_is_not_in_step_with_a_primary_that_goes_on_with_it() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    observed(health, replica(100), 10.0, history)
    history.note("aaa", 100, 12.0)  # an idle primary: whoever was in step would still be
    said = replica(400, "bbb", second_id="aaa", second_offset=101)
    assert observed(health, said, 12.0, history).in_step_at == 10.0


def test_nothing_is_guessed_of_a_replica_that_followed_somebody_else_while_our_primary_answered() -> None:
    history, stranger, restarted = History(), Health(), Health()
    history.note("aaa", 100, 10.0)
    observed(stranger, replica(100, "zzz"), 10.0, history)
    observed(restarted, replica(100), 10.0, history)
    said = replica(100, "zzz", link_up=True)
    assert observed(stranger, said, 20.0, history, primary_answers=False).known_at is None
    assert observed(restarted, said, 20.0, history, primary_answers=False).known_at == 20.0


def test_a_replica_of_somebody_else_is_not_believed_while_the_primary_answers() -> None:
    history, health = History(), Health()
    history.note("aaa", 100, 10.0)
    assert observed(health, replica(500, "other"), 10.0, history).known_at is None


def test_with_no_primary_since_the_start_a_replica_is_as_old_as_it_says_itself() -> None:
    up = observed(Health(), replica(500, last_heard_s=3.0), 20.0, History(), primary_answers=False)
    assert (up.known_at, up.in_step_at, up.lag_s(20.0)) == (17.0, None, None)
    down = observed(Health(), replica(500, link_up=False, down_since_s=7.0), 20.0, History(), primary_answers=False)
    assert down.known_at == 13.0


@pytest.mark.parametrize(
    "said",
    [
        replica(1, link_up=False, down_since_s=5.0),  # never completed a sync
        replica(500, link_up=False),  # read an old file, has had no link since
        replica(500, link_up=True, syncing=True),
        replica(500, link_up=False, down_since_s=5.0, syncing=True),
    ],
)
def test_with_no_primary_since_the_start_nothing_is_guessed_of_a_replica_never_in_step(said: Replication) -> None:
    assert observed(Health(), said, 20.0, History(), primary_answers=False).known_at is None


def test_samples_are_bounded_in_streams() -> None:
    history = History()
    for number in range(1000):
        history.note(f"stream {number}", 1, float(number))
    assert len(history._streams) <= 128
    assert history.passed(replica(1, "stream 999"), through_second=True) == 999.0


def test_three_failures_in_a_row_open_the_breaker_and_an_answer_between_them_does_not_let_it() -> None:
    breaker = Breaker()
    assert [breaker.failed(1.0), breaker.failed(1.0)] == [False, False]
    assert not breaker.answered()
    assert [breaker.failed(1.0), breaker.failed(1.0), breaker.failed(1.0)] == [False, False, True]
    assert breaker.state(1.0) == "open"


def test_an_open_breaker_admits_one_probe_after_its_hold() -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.failed(1.0)
    assert not breaker.admits_probe(1.2, within_s=0.2)
    assert breaker.state(1.25) == "half-open"
    assert breaker.admits_probe(1.25, within_s=0.2)
    assert not breaker.admits_probe(1.3, within_s=0.2), "one at a time"
    assert breaker.admits_probe(1.5, within_s=0.2), "a probe that never reports does not hold it for ever"


def test_a_probe_that_fails_doubles_the_hold_up_to_a_second_and_one_that_is_answered_closes() -> None:
    breaker = Breaker()
    now = 1.0
    for _ in range(3):
        breaker.failed(now)
    holds = []
    for _ in range(4):
        holds.append(breaker.held_until - now)
        now = breaker.held_until
        assert breaker.failed(now)
    assert holds == [0.25, 0.5, 1.0, 1.0]
    assert breaker.answered()
    assert breaker.state(now) == "closed"
    for _ in range(3):
        breaker.failed(now)
    assert breaker.held_until - now == 0.25


def test_failures_while_open_change_nothing() -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.failed(1.0)
    assert not breaker.failed(1.1)
    assert breaker.held_until == 1.25
