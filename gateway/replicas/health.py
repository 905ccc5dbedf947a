"""Health: what is known of a node, and whether that makes it fit to be read.

Knows: INFO replication, replication offsets and ids, lag, rests, the breaker's rules.
Must not know: sockets, tasks, the clock: every moment is handed in.

Lag is measured by samples, not by asking a replica how it feels. The primary's offset is sampled; a replica whose
offset has passed a sample holds everything written before the sample's INFO was **sent**. Its lag is now minus that
moment: it grows by itself when a replica hangs, or the primary dies, with no further message.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from gateway.replicas.topology import Role

_NO_ID = "0" * 40
_KEPT_SAMPLES = 1024  # at two a second: more than eight minutes
_KEPT_STREAMS = 128  # a cluster has one for each shard, and a new one with each failover


class Replication(NamedTuple):
    """What a node says about replication (``INFO replication``), in our words.

    ``offset`` is how much of the stream the node has applied. ``second_id`` is the stream it followed before its last
    promotion, which is the same as ``replication_id`` up to ``second_offset``. ``down_since_s`` is None where
    the link is up, or where the server does not know (it has not been up since it started).
    """

    role: Role
    replication_id: str
    offset: int
    second_id: str | None = None
    second_offset: int = -1
    link_up: bool = False
    syncing: bool = False
    down_since_s: float | None = None
    last_heard_s: float = 0.0


def fields_of(info: bytes) -> dict[str, str]:
    """Return the ``name:value`` lines of an INFO reply."""
    lines = info.decode("utf-8", "replace").split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def replication_of(info: bytes) -> Replication:
    """Parse ``INFO replication``. Raises ValueError for a reply that is none."""
    field = fields_of(info)
    try:
        is_primary = field["role"] == "master"
        second = field.get("master_replid2", _NO_ID)
        down_s = int(field.get("master_link_down_since_seconds", "-1"))
        return Replication(
            role="primary" if is_primary else "replica",
            replication_id=field.get("master_replid", ""),
            offset=int(field["master_repl_offset" if is_primary else "slave_repl_offset"]),
            second_id=None if second == _NO_ID else second,
            second_offset=int(field.get("second_repl_offset", "-1")),
            link_up=is_primary or field["master_link_status"] == "up",
            syncing=field.get("master_sync_in_progress", "0") == "1",
            down_since_s=down_s if down_s >= 0 else None,
            last_heard_s=max(0, int(field.get("master_last_io_seconds_ago", "0"))),
        )
    except KeyError as missing:
        raise ValueError(f"INFO replication without {missing}") from missing


class History:
    """Samples of primaries: at which moment which stream was at which offset.

    Kept by replication id, so that a failover, which begins a new id, forgets nothing: a stream and the one it
    continues (``second_id``) are the same up to ``second_offset``.
    """

    def __init__(self) -> None:
        self._streams: dict[str, deque[tuple[float, int]]] = {}

    def note(self, replication_id: str, offset: int, sent_at: float) -> None:
        """Keep one sample of a primary, taken when its INFO was sent."""
        if replication_id not in self._streams:
            if len(self._streams) >= _KEPT_STREAMS:
                del self._streams[next(iter(self._streams))]
            self._streams[replication_id] = deque(maxlen=_KEPT_SAMPLES)
        samples = self._streams[replication_id]
        if samples and samples[-1][1] == offset:
            samples[-1] = (sent_at, offset)  # an idle stream: who has passed it was in step until now
        else:
            samples.append((sent_at, offset))

    def passed(self, said: Replication, *, through_second: bool) -> float | None:
        """Return the newest moment whose sample this node has passed; None if it has passed none that is known.

        ``through_second``: the stream that the node followed before may prove it too. Not while its primary answers
        and goes on with that stream: the node has left it, for one that goes a way of its own.
        """
        found = self._newest(said.replication_id, said.offset)
        if found is None and through_second and said.second_id is not None:
            found = self._newest(said.second_id, min(said.offset, said.second_offset))
        return found

    def knows(self, said: Replication) -> bool:
        """Whether this node's stream is one that was sampled, or goes on from one."""
        return said.replication_id in self._streams or said.second_id in self._streams

    def _newest(self, replication_id: str, offset: int) -> float | None:
        for sent_at, sample in reversed(self._streams.get(replication_id, ())):
            if sample <= offset:
                return sent_at
        return None


class Health:
    """What is known of one node. ``in_step_at`` is the last moment it provably held everything; None: never proven.

    ``guess_at`` stands in where no primary answered since this process began: the moment up to which the node
    itself says that it followed its primary. It never makes a node in step, only readable with the stale mark.
    ``promoted_at``: the node was promoted while it was watched, and was last known to be in step then.
    ``stranger``: when the primary last answered, nothing that this node holds came from there.
    """

    __slots__ = (
        "guess_at",
        "in_step_at",
        "link_up",
        "promoted_at",
        "resting_for",
        "resting_until",
        "role",
        "said",
        "stranger",
    )

    def __init__(self) -> None:
        self.role: Role | None = None
        self.said: Replication | None = None
        self.link_up = False
        self.in_step_at: float | None = None
        self.guess_at: float | None = None
        self.promoted_at: float | None = None
        self.stranger = False
        self.resting_until = 0.0
        self.resting_for = ""

    def observe(
        self,
        said: Replication,
        sent_at: float,
        history: History,
        *,
        leads: bool,
        primary_answers: bool,
        primary_known: bool,
    ) -> None:
        """Take in what the node said, in answer to an INFO sent at ``sent_at``.

        ``leads``: it is the primary that its shard has; replicas are measured by that one's stream and no other, since
        a second primary goes a way of its own, and who follows it is in step with nobody. ``primary_known``: the
        shard's primary has answered since this process began, be it long ago.

        A node that was restarted empty has a new replication id, one that was restarted with an old file an older
        offset: nothing that was known of it holds any more, and it is believed again once it has passed a sample.
        """
        if not self._continues(said):
            self.in_step_at = self.guess_at = self.promoted_at = None
            self.stranger = False
        if said.role == "replica":
            self.promoted_at = None
        elif self.role == "replica":
            self.promoted_at = self.known_at
        if primary_known and primary_answers:
            self.stranger = not leads and not history.knows(said)
        self.said, self.role = said, said.role
        self.link_up = said.link_up and not said.syncing
        if said.role == "primary":
            if leads:
                history.note(said.replication_id, said.offset, sent_at)
                self.in_step_at = sent_at
            return
        passed = history.passed(said, through_second=not primary_answers)
        if passed is not None:
            self.in_step_at = passed
        # With a primary that answers there is nothing to guess: a node that has passed none of its samples
        # follows somebody else, or is further behind than anyone remembers.
        self.guess_at = None if primary_answers or self.stranger else self._guess(said, sent_at)

    def _continues(self, said: Replication) -> bool:
        before = self.said
        if before is None:
            return True
        same_stream = before.replication_id in (said.replication_id, said.second_id)
        return same_stream and said.offset >= before.offset

    @staticmethod
    def _guess(said: Replication, sent_at: float) -> float | None:
        if said.link_up and not said.syncing:
            return sent_at - said.last_heard_s
        # Offset 1 or 0: it never completed a sync since it started. No "down since": neither, but it read a file.
        if said.offset > 1 and said.down_since_s is not None and not said.syncing:
            return sent_at - said.down_since_s
        return None

    @property
    def known_at(self) -> float | None:
        """The last moment at which the node was in step, proven or else guessed; None: it must not be read."""
        if self.promoted_at is not None:
            return self.promoted_at
        return self.guess_at if self.in_step_at is None else self.in_step_at

    def lag_s(self, now: float) -> float | None:
        """Return how far behind the node may be; None if that is not known."""
        return None if self.in_step_at is None else max(0.0, now - self.in_step_at)

    def rest(self, until: float, reason: str) -> None:
        """Leave the node alone until then (it said LOADING, MASTERDOWN …)."""
        self.resting_until, self.resting_for = until, reason


BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Keep reads away from a node that does not answer in time.

    closed: ``THRESHOLD`` failures in a row open it. open: nothing goes there until the hold is over. half-open: one
    probe at a time is let through; it closes the breaker, or opens it again for twice as long.
    """

    THRESHOLD = 3
    HOLD_S = 0.25
    LONGEST_HOLD_S = 1.0

    __slots__ = ("_hold_s", "_probe_until", "failures", "held_until", "opened")

    def __init__(self) -> None:
        self.failures = 0
        self.opened = False
        self.held_until = 0.0
        self._hold_s = self.HOLD_S
        self._probe_until = 0.0

    def state(self, now: float) -> BreakerState:
        """Return which of the three states this is."""
        if not self.opened:
            return "closed"
        return "open" if now < self.held_until else "half-open"

    def failed(self, now: float) -> bool:
        """Count one failure; return whether it opened the breaker, or opened it again."""
        self.failures += 1
        probing = self.opened and now >= self.held_until
        if probing:
            self._hold_s = min(self._hold_s * 2, self.LONGEST_HOLD_S)
        elif self.opened or self.failures < self.THRESHOLD:
            return False
        self.opened = True
        self.held_until = now + self._hold_s
        self._probe_until = 0.0
        return True

    def answered(self) -> bool:
        """Count one answer in time; return whether it closed the breaker."""
        closed, self.opened = self.opened, False
        self.failures, self._hold_s, self._probe_until = 0, self.HOLD_S, 0.0
        return closed

    def admits_probe(self, now: float, within_s: float) -> bool:
        """Whether a half-open breaker lets a probe through now; if so it is taken, for ``within_s`` at most.

        A probe that never reports (its caller was cancelled) does not keep the breaker half-open for ever.
        """
        if self.state(now) != "half-open" or now < self._probe_until:
            return False
        self._probe_until = now + within_s
        return True
