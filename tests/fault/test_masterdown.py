"""B12 through the gateway as it runs: the primary is dead, and the only replica refuses to serve what may be stale."""

from __future__ import annotations

from tests.servers import Gateway, RedisGroup, eventually

RACE = "/v1/leaderboards/race"


def test_b12_a_replica_that_refuses_is_an_outage_and_not_an_error_of_its_own() -> None:
    """The top and those inside it come from the last known board, marked; the others are told when to ask again."""
    with RedisGroup(replicas=1) as redis:
        redis.write("ZADD", "lb:race", *(part for n in range(1, 301) for part in (1000 - n, f"m{n:03}")))
        redis.replicas[0].call("CONFIG", "SET", "replica-serve-stale-data", "no")
        with Gateway({"redis": redis.settings, "leaderboards": [{"name": "race", "key": "lb:race"}]}) as gateway:
            eventually(lambda: "leaderboard-stale" not in gateway.get(f"{RACE}/top")[1], what="all is well")
            redis.primary.kill()
            eventually(lambda: "leaderboard-stale" in gateway.get(f"{RACE}/top")[1], what="the top is marked")
            eventually(lambda: gateway.json("/readyz")["status"] == "degraded", what="health says so")
            assert gateway.json(f"{RACE}/top")["stale"] is True
            inside = gateway.json(f"{RACE}/members/m007")
            assert (inside["rank"], inside["stale"]) == (7, True)
            status, headers, _ = gateway.get(f"{RACE}/members/m250")
            assert (status, headers["retry-after"]) == (503, "1")
            errors = gateway.stop()
            states = [f"replica {redis.replicas[0].address} is {state} " for state in ("link_down", "resting")]
            assert any(state in errors for state in states), "why it is not read is in the log"
