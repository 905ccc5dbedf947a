"""The gateway's configuration file, for measurements.

Knows: the keys of the TOML file.
Must not know: how a gateway is started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtests.nodes import Nodes

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What a measured gateway is told. Boards are names; each lies under ``lb:<name>``."""

    boards: Sequence[str]
    workers: int = 1
    sentinel_port: int = 0
    """A Sentinel on loopback that watches ``service``, in place of the nodes' addresses."""
    service: str = "leaderboards"
    board: Table = field(default_factory=dict)
    """Keys that every board carries beside its name and key."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Whole further tables: ``redis`` keys beside the nodes, ``shared_tier``, ``cdn`` …"""

    def text(self, nodes: Nodes, port: int, admin_port: int) -> str:
        """Return the file for a gateway on these loopback ports over these nodes."""
        redis: dict[str, Any] = {"primary": nodes.primary.url, "replicas": [node.url for node in nodes.replicas]}
        if self.sentinel_port:
            redis = {"sentinels": [f"127.0.0.1:{self.sentinel_port}"], "service": self.service}
        tables: dict[str, dict[str, Any]] = {
            "server": {"port": port, "workers": self.workers, "admin": f"127.0.0.1:{admin_port}", "drain_s": 0},
            "log": {"level": "warning"},
            "redis": redis,
        }
        for name, more in self.tables.items():
            tables.setdefault(name, {}).update(more)
        lines = [line for name, keys in tables.items() for line in (f"[{name}]", *assignments(keys), "")]
        for name in self.boards:
            keys = {"name": name, "key": f"lb:{name}", **self.board}
            lines += ["[[leaderboards]]", *assignments(keys), ""]
        return "\n".join(lines)


def assignments(keys: Table) -> list[str]:
    """Return keys as TOML lines; JSON's texts, numbers, booleans and lists are TOML too."""
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
