"""A probe that is told to stop leaves its board as it found it: empty."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.servers import Process, RedisServer, eventually
from tests.servers.gateway import ROOT, toml

pytestmark = pytest.mark.xdist_group("load")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_probe_and_its_member_is_gone(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "gateway.toml"
    with RedisServer() as server:
        config.write_text(
            toml({"redis": {"primary": server.url}, "leaderboards": [{"name": "probe", "key": "lb:probe"}]})
        )
        process = Process("probe")
        try:
            nobody = ["--url", "http://127.0.0.1:1", "--config", str(config)]
            process.spawn([sys.executable, "-m", "gateway", "probe", "probe", *nobody], cwd=ROOT)
            eventually(lambda: server.call("ZCARD", "lb:probe") == 1, what="the probe has written")
            assert process.popen is not None
            process.popen.send_signal(number)
            assert process.popen.wait(60) == 130
            assert process.stderr.read_text() == "probe: stopped.\n"
            assert server.call("EXISTS", "lb:probe") == 0
        finally:
            process.close()
