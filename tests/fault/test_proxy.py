"""The fault proxy does to a connection what it says, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.fault.proxy import FaultProxy, ThreadedProxy
from tests.servers import RedisGroup, free_port


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """Give a proxy in front of a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    async with FaultProxy(port) as running:
        yield running
    server.close()


async def ask(proxy: FaultProxy, data: bytes = b"0123456789", within_s: float = 30.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(data)
        async with asyncio.timeout(within_s):
            return await reader.readexactly(len(data))
    finally:
        writer.transport.abort()


async def test_it_forwards_and_counts(proxy: FaultProxy) -> None:
    assert await ask(proxy) == b"0123456789"
    assert (proxy.accepted, proxy.down.passed) == (1, 10)


async def test_latency_is_added_each_way(proxy: FaultProxy) -> None:
    proxy.delay(0.05)
    began = time.monotonic()
    await ask(proxy)
    assert time.monotonic() - began >= 0.1


async def test_a_hanging_proxy_accepts_and_answers_once_healed(proxy: FaultProxy) -> None:
    proxy.hang()
    asking = asyncio.create_task(ask(proxy))
    done, _ = await asyncio.wait([asking], timeout=0.05)
    assert not done
    await proxy.heal()
    assert await asking == b"0123456789"


async def test_dropped_bytes_never_arrive(proxy: FaultProxy) -> None:
    proxy.drop()
    with pytest.raises(TimeoutError):
        await ask(proxy, within_s=0.05)


async def test_a_reply_is_cut_after_so_many_bytes_and_only_once(proxy: FaultProxy) -> None:
    proxy.cut(4)
    with pytest.raises(asyncio.IncompleteReadError) as caught:
        await ask(proxy)
    assert caught.value.partial == b"0123"
    assert await ask(proxy) == b"0123456789"


async def test_a_reset_connection_ends_with_a_reset(proxy: FaultProxy) -> None:
    proxy.reset(new_ones_too=True)
    with pytest.raises(ConnectionResetError):
        await ask(proxy)


async def test_refused_connections_are_accepted_again_once_healed(proxy: FaultProxy) -> None:
    await proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await ask(proxy)
    await proxy.heal()
    assert await ask(proxy) == b"0123456789"


async def test_slow_bytes_arrive_one_by_one(proxy: FaultProxy) -> None:
    proxy.slow(200)
    began = time.monotonic()
    await ask(proxy)
    assert time.monotonic() - began >= 0.04


def test_a_threaded_proxy_serves_sync_clients(redis_group: RedisGroup) -> None:
    with ThreadedProxy(redis_group.primary.port) as proxy:
        patient, client = (
            redis.Redis(port=proxy.port, socket_timeout=s, retry=Retry(NoBackoff(), 0)) for s in (30, 0.1)
        )
        assert patient.ping()
        proxy.do(lambda at: at.hang())
        with pytest.raises(redis.TimeoutError):
            client.ping()
        patient.close()
        client.close()
