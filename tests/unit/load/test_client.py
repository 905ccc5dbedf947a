"""The client of a load: names that no name server can be asked for are names that do not resolve."""

from __future__ import annotations

import pytest
from redis.sentinel import Sentinel

from gateway.load import client as client_module
from gateway.load.board import LoadFailed
from gateway.load.client import primary
from gateway.settings import RedisSettings

MALFORMED = "a..example"
LONG = f"{'a' * 64}.example"


@pytest.mark.parametrize(
    "redis",
    [
        RedisSettings.model_construct(primary=f"redis://{MALFORMED}:6379/0"),
        RedisSettings.model_construct(sentinels=(f"{MALFORMED}:26379", f"{LONG}:26379"), service="boards"),
        RedisSettings.model_construct(cluster=(f"{MALFORMED}:7000",)),
    ],
)
def test_without_any_sound_name_there_is_one_sentence(redis: RedisSettings) -> None:
    with pytest.raises(LoadFailed) as caught, primary(redis):
        pytest.fail("there is nothing to connect to")
    assert "a..example" in caught.value.detail
    assert caught.value.detail.endswith("cannot be resolved.")


def test_one_malformed_name_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    class Noting(Sentinel):
        def __init__(self, sentinels: list[tuple[str, int]], **options: object) -> None:
            asked.extend(sentinels)
            super().__init__(sentinels, **options)  # type: ignore[no-untyped-call] # redis-py's own

    monkeypatch.setattr(client_module, "Sentinel", Noting)
    redis = RedisSettings.model_construct(sentinels=(f"{MALFORMED}:26379", "127.0.0.1:26379"), service="boards")
    with primary(redis):
        assert asked == [("127.0.0.1", 26379)]
