"""Failures: what can go wrong with one attempt on one node, before it is the gateway's own error.

Knows: Redis's error codes (the first word of an error reply) and what each asks of a reader.
Must not know: retries, budgets, the gateway's error tree.
"""

from __future__ import annotations


class AttemptError(Exception):
    """One attempt on one node gave no answer."""


class AttemptTimeout(AttemptError):
    """The node did not answer within the attempt's time; the connection's reply stream stays in order."""


class ConnectionLost(AttemptError):
    """The connection went away, or there was none; nobody knows whether the read was run, and it does not matter."""


class ErrorReply(AttemptError):
    """Redis answered ``-CODE text``. Only ``code`` is ever looked at: texts differ between versions."""

    def __init__(self, text: str) -> None:
        self.code, _, self.detail = text.partition(" ")
        super().__init__(text)


RESTS_S = {
    # A restarted node that reads its data back: minutes, perhaps; the health monitor's PING ends or renews the rest.
    "LOADING": 1.0,
    # A replica without its primary, told not to serve stale data.
    "MASTERDOWN": 1.0,
    # A script or function has run for longer than the server's limit; reads only wait for it.
    "BUSY": 0.5,
    # A cluster that lost its majority or a slot's owner: this node answers nothing until it is over.
    "CLUSTERDOWN": 0.5,
    # The account is wrong on this node; asking it again at once would only fill its log.
    "NOAUTH": 2.0,
    "WRONGPASS": 2.0,
}
"""Codes that say something about the whole node, and how long it is then left alone."""

REFUSING_S = 2.0
"""How long a node is left alone that refused what another node answered: its account or its version differs."""

SEEN_BY_PING = frozenset({"LOADING", "MASTERDOWN", "BUSY", "NOAUTH", "WRONGPASS"})
"""Codes that PING is answered with too, so that its answer ends the rest. Of the others it says nothing: a node of a
cluster that is down answers PING, and an account may PING that may not read."""
