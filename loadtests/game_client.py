"""Game clients: each polls the top with the validator it holds, now and then looks up its rank and its neighbors.

Knows: the gateway's routes, what a client does between two reads.
Must not know: how the gateway is set up, or what answers behind it.

Closed loop: a client waits for its answer, thinks, and asks again. So it shows what players see, not what the gateway
can bear; ``mixed_10k`` is for that. Members are learned from the API, so it runs against any gateway:

    locust -f loadtests/game_client.py --host http://127.0.0.1:8080
"""

from __future__ import annotations

import random
from typing import ClassVar

from locust import FastHttpUser, between, task

from loadtests import reads
from loadtests.reads import KnownMember, top_target
from loadtests.suite import Suite
from loadtests.verdict import Claim
from loadtests.wire import segment


class GameClient(FastHttpUser):
    """One player with the leaderboard on the screen."""

    suite = Suite("game_client", Claim(), seconds=30)
    wait_time = between(0.2, 1.0)
    learned: ClassVar[dict[str, list[KnownMember]]] = {}
    """Members by board, learned once a process."""

    def on_start(self) -> None:
        """Choose a board and who we are on it."""
        if not self.learned:
            for board in reads.boards_of(str(self.host)):
                if members := reads.members_of(str(self.host), board, windows=5):
                    self.learned[board] = members
        self.board = random.choice(list(self.learned))
        self.member = random.choice(self.learned[self.board]).member
        self.etag: str | None = None

    @task(90)
    def poll(self) -> None:
        """Ask whether the top has changed."""
        headers = {"If-None-Match": self.etag} if self.etag else {}
        name = reads.TOP_CONDITIONAL if self.etag else reads.TOP
        with self.client.get(top_target(self.board), headers=headers, name=name, catch_response=True) as answer:
            if answer.status_code == 200:
                self.etag = answer.headers.get("ETag")
                answer.success()
            elif answer.status_code == 304:
                answer.success()
            else:
                answer.failure(f"status {answer.status_code}")

    @task(7)
    def rank(self) -> None:
        """Look up one's own rank."""
        self._member_read(reads.RANK, "")

    @task(3)
    def neighbors(self) -> None:
        """Look up who is just above and below."""
        self._member_read(reads.NEIGHBORS, "/neighbors")

    def _member_read(self, name: str, suffix: str) -> None:
        target = f"/v1/leaderboards/{segment(self.board)}/members/{segment(self.member)}{suffix}"
        with self.client.get(target, name=name, catch_response=True) as answer:
            # A fixed set of reasons: a message that holds the URL would make a row for every member.
            if answer.status_code == 200:
                answer.success()
            else:
                answer.failure(f"status {answer.status_code}")
