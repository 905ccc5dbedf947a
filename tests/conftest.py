"""Fixtures for real servers: shared ones that are cheap to keep, and a stack for a test's own.

Knows: the server classes.
Must not know: what any test wants of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import hypothesis
import pytest

from tests.servers import Certificates, Postgres, RedisGroup

# A deadline of 200 ms an example, or a second for the first ones to be made, would be an assertion on time: on a busy
# machine it fails by itself.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Give a stack that stops everything entered into it when the test ends: ``stack.enter_context(…)``."""
    with contextlib.ExitStack() as servers:
        yield servers


@pytest.fixture(scope="module")
def module_stack() -> Iterator[contextlib.ExitStack]:
    """Give a stack that stops everything entered into it when the module's last test ends."""
    with contextlib.ExitStack() as servers:
        yield servers


@pytest.fixture(scope="session")
def shared_redis_group() -> Iterator[RedisGroup]:
    """Start one primary and two replicas for all tests of this process; tests take ``redis_group``."""
    with RedisGroup() as group:
        yield group


@pytest.fixture
def redis_group(shared_redis_group: RedisGroup) -> RedisGroup:
    """Give the shared primary and two replicas: in sync, empty, statistics at zero."""
    shared_redis_group.reset()
    return shared_redis_group


@pytest.fixture(scope="session")
def certificates() -> Iterator[Certificates]:
    """Give a certificate authority and a server certificate for localhost."""
    with Certificates() as files:
        yield files


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Give one PostgreSQL server for all tests of this process."""
    with Postgres() as server:
        yield server
