"""A read-path caching gateway for game leaderboards that live in Redis sorted sets."""

__version__ = "0.1.0"
