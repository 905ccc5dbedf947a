"""The demo's board: 15,000 real packages, and the settings that the gateway serves them with.

Knows: the data file, the settings file's form.
Must not know: processes, HTTP, Redis.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from gateway.scorefile import parse

NAME = "downloads"
KEY = "lb:downloads"

_SETTINGS = """
[server]
host = "{host}"
port = {port}
admin = "127.0.0.1:{admin}"
drain_s = 0

[log]
level = "warning"

[redis]
primary = "redis://127.0.0.1:{primary}/0"
replicas = [{replicas}]

[[leaderboards]]
name = "{name}"
key = "{key}"
"""


def rows() -> list[tuple[bytes, float]]:
    """Return the packages with their downloads, the most downloaded first."""
    data = files("gateway.demo").joinpath("data/package-downloads/2026-03.csv").read_bytes()
    return list(parse(data.splitlines(keepends=True)).rows())


def settings(*, host: str, port: int, admin: int, primary: int, replicas: Sequence[int]) -> str:
    """Return the settings file for ``serve``: every value that it does not name is the default."""
    urls = ", ".join(f'"redis://127.0.0.1:{replica}/0"' for replica in replicas)
    return _SETTINGS.format(
        host=host, port=port, admin=admin, primary=primary, replicas=urls, name=NAME, key=KEY
    ).lstrip()
