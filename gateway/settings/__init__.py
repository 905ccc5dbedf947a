"""Settings: the TOML file and the environment, read once, every problem listed.

Knows: every key of the contract, its default and what it takes.
Must not know: who uses a setting, Redis connections, HTTP.
"""

from gateway.settings.leaderboards import LeaderboardSettings, SeasonSettings
from gateway.settings.loading import SECTIONS, Settings, load
from gateway.settings.redis import RedisSettings
from gateway.settings.sections import (
    CdnSettings,
    LastKnownSettings,
    LogSettings,
    PurgeTarget,
    ServerSettings,
    SharedTierSettings,
)

__all__ = [
    "SECTIONS",
    "CdnSettings",
    "LastKnownSettings",
    "LeaderboardSettings",
    "LogSettings",
    "PurgeTarget",
    "RedisSettings",
    "SeasonSettings",
    "ServerSettings",
    "Settings",
    "SharedTierSettings",
    "load",
]
