"""Real servers for tests: each on free loopback ports, in a folder of its own, stopped whatever happens.

Knows: where the classes live.
Must not know: what any test wants of them.

Every class is a context manager: ``with RedisServer() as server: …``, or ``stack.enter_context(RedisServer())``
with the ``stack`` fixture. All are plain synchronous code; from async tests they block the loop for milliseconds.
"""

from tests.servers.certificates import Certificates
from tests.servers.gateway import Gateway
from tests.servers.postgres import Postgres
from tests.servers.process import Process, eventually, free_port, need
from tests.servers.redis import REDIS_6_2, REDIS_7_0, REDIS_8_2, Binary, RedisGroup, RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_sentinel import SentinelGroup, SentinelServer
from tests.servers.web import Nginx, Varnish

__all__ = [
    "REDIS_6_2",
    "REDIS_7_0",
    "REDIS_8_2",
    "Binary",
    "Certificates",
    "Gateway",
    "Nginx",
    "Postgres",
    "Process",
    "RedisCluster",
    "RedisGroup",
    "RedisServer",
    "SentinelGroup",
    "SentinelServer",
    "Varnish",
    "eventually",
    "free_port",
    "need",
]
