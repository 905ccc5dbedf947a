"""Last known boards through the gateway as it runs: an outage and a restart in it lose nothing that was known."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.patience import PatientGateway
from tests.servers import Gateway, RedisServer, eventually, free_port
from tests.servers.process import accepts

pytestmark = pytest.mark.xdist_group("lastknown")

RACE, OTHER, SEASON = (f"/v1/leaderboards/{name}/top" for name in ("race", "other", "season"))


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        server.call("ZADD", "lb:race", 1, "ann", 2.5, "bob", 2.5, "cyd")
        server.call("ZADD", "lb:other", 1, "ann")
        yield server


def settings(redis: RedisServer, store: str, **server: Any) -> dict[str, Any]:
    boards: list[dict[str, Any]] = [
        {"name": name, "key": f"lb:{name}", "ttl_ms": 100, "grace_ms": 600} for name in ("race", "other")
    ]
    long = {"label": "long", "start": "2020-03-01", "end": "2999-03-01"}  # not daily: a test may run over midnight
    boards.append({"name": "season", "key": "lb:<period>", "seasons": [long], "ttl_ms": 100, "grace_ms": 600})
    boards.append({"name": "clan-<id>", "key": "lb:clan:<id>"})
    return {
        "server": server,
        "redis": {"primary": redis.url},
        "last_known": {"store": store, "interval_s": 1},
        "leaderboards": boards,
    }


def saved(gateway: Gateway) -> float:
    return gateway.metric("gateway_last_known_saves_total", outcome="saved")


def stale_answer(gateway: Gateway, path: str) -> tuple[dict[str, str], dict[str, Any]]:
    status, headers, body = gateway.get(path)
    assert status == 200, body
    answer = json.loads(body)
    assert answer["stale"] is True
    assert int(headers["leaderboard-stale"]) >= 0
    return headers, answer


def test_a_restart_during_an_outage_serves_the_same_boards_marked_stale(redis: RedisServer, tmp_path: Path) -> None:
    """Killed without warning, two workers, and one board deleted by its owner just before."""
    with PatientGateway(settings(redis, f"file://{tmp_path}", workers=2)) as gateway:
        gateway.wait_all_ready()
        assert gateway.json(OTHER)["total"] == 1
        eventually(lambda: saved(gateway) >= 3, what="every board is saved")
        redis.call("DEL", "lb:other")
        eventually(lambda: gateway.json(OTHER)["total"] == 0)
        (other,) = tmp_path.glob("last/other.*.board")  # not what is being written beside it
        eventually(lambda: b"ann" not in other.read_bytes(), what="that it is empty is saved too")
        fresh = gateway.json(RACE)
        redis.kill()
        outage = datetime.now(UTC)
        eventually(
            lambda: all("leaderboard-stale" in gateway.get(RACE)[1] for _ in range(20)), what="both workers know"
        )
        before, answer = stale_answer(gateway, RACE)
        assert answer["entries"] == fresh["entries"]
        os.killpg(gateway.pid, SIGKILL)  # all of them at one instant: none sees that another is gone
        gateway.kill()
        eventually(lambda: not accepts(gateway.port), what="the workers are gone as well")

        gateway.wait_for = None
        gateway.start()
        eventually(lambda: accepts(gateway.port))  # the parent listens, and the workers are still on their way
        for path in (RACE, "/v1/leaderboards/race/members/cyd") * 2:
            stale_answer(gateway, path)
        gateway.wait_all_ready(status="degraded")
        ready = gateway.json("/readyz")
        assert ready["status"] in ("ready", "degraded")
        assert ready["redis"] == "down"
        assert ready["leaderboards"]["last_known"] == 3
        headers, answer = stale_answer(gateway, RACE)
        assert answer["entries"] == fresh["entries"]
        assert headers["etag"] == before["etag"]
        assert datetime.fromisoformat(headers["leaderboard-as-of"]) < outage
        assert stale_answer(gateway, OTHER)[1]["total"] == 0, "a deleted board does not come back"
        assert stale_answer(gateway, SEASON)[1]["total"] == 0
        assert gateway.get("/v1/leaderboards/clan-red/top")[0] == 503
        member = gateway.json("/v1/leaderboards/race/members/cyd")
        assert (member["rank"], member["stale"]) == (1, True)

        redis.start()
        redis.call("ZADD", "lb:race", 9, "dan")
        eventually(lambda: gateway.json(RACE)["entries"][0]["member"] == "dan")
        errors = gateway.stop()
        assert "last known store" not in errors


def test_boards_are_saved_at_stop_and_a_torn_file_is_one_warning(redis: RedisServer, tmp_path: Path) -> None:
    with PatientGateway(settings(redis, f"file://{tmp_path}")) as gateway:
        gateway.settings["last_known"]["interval_s"] = 3600
        gateway.stop()
        gateway.start()
        redis.call("ZADD", "lb:race", 77, "dan")
        eventually(lambda: gateway.json(RACE)["total"] == 4)
        gateway.stop()
        redis.kill()
        (other,) = tmp_path.glob("last/other.*.board")
        other.write_bytes(other.read_bytes()[:-1])
        gateway.wait_for = "/livez"
        gateway.start()
        assert stale_answer(gateway, RACE)[1]["entries"][0]["member"] == "dan"
        assert gateway.get(OTHER)[0] == 503
        assert gateway.json("/livez") == {"status": "ok"}
        assert gateway.get("/readyz")[0] == 503
        assert gateway.stop().count("is torn or not a gateway's") == 1


@pytest.mark.parametrize("kind", ["folder", "postgresql", "s3"])
def test_a_store_that_is_broken_from_the_start_costs_the_service_nothing(
    redis: RedisServer, tmp_path: Path, kind: str
) -> None:
    """A folder that cannot be made, a PostgreSQL that is not there, an S3 service that refuses."""
    (tmp_path / "file").write_text("in the way")
    store = {
        "folder": f"file://{tmp_path}/file/kept",
        "postgresql": f"postgresql://nobody@127.0.0.1:{free_port()}/none",
        "s3": "s3://boards/prefix",
    }[kind]
    refusing = f"http://127.0.0.1:{free_port()}"
    env = {"AWS_ENDPOINT_URL": refusing, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with Gateway(settings(redis, store), env=env, wait_for=None) as gateway:
        eventually(lambda: accepts(gateway.port) and gateway.get("/livez")[0] == 200)
        gateway.wait_ready(within_s=60)
        eventually(lambda: gateway.metric("gateway_last_known_saves_total", outcome="failed") >= 2, within_s=60)
        took = []
        for _ in range(100):
            sent = time.monotonic()
            assert gateway.get(RACE)[0] == 200
            took.append(time.monotonic() - sent)
        assert sorted(took)[90] < 1.0, "a store's time-out is 5 s; a busy machine holds up a few of a hundred"
        errors = gateway.stop()
        assert errors.count("last known store fails") == 1
