"""Discovery runs behind everything: one refresh at a time, rate-limited, never ended by a fault."""

from __future__ import annotations

import asyncio

import pytest

from gateway.replicas.discovery import Account, Clients, Refresher, resolve
from gateway.replicas.login import Address
from tests.fakes import FakeClock, settle


class Refreshes:
    """A refresh that counts, and answers what it is told to."""

    def __init__(self) -> None:
        self.count = self.running = 0
        self.answer: bool | Exception = True
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> bool:
        self.count += 1
        self.running += 1
        assert self.running == 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        finally:
            self.running -= 1


async def started(refreshes: Refreshes, clock: FakeClock) -> Refresher:
    refresher = Refresher(refreshes, clock, every_s=5, retry_s=0.5, pause_s=0.25)
    await refresher.start(patience_s=1)
    return refresher


async def test_it_refreshes_every_so_often_and_sooner_after_a_failure() -> None:
    clock, refreshes = FakeClock(), Refreshes()
    refresher = await started(refreshes, clock)
    await clock.elapse(10.1)
    assert refreshes.count == 3
    refreshes.answer = False
    await clock.elapse(5)
    refreshes.count = 0
    await clock.elapse(2)
    assert refreshes.count == 4
    await refresher.stop()


async def test_a_flood_of_reports_makes_one_refresh_a_pause() -> None:
    clock, refreshes = FakeClock(), Refreshes()
    refresher = await started(refreshes, clock)
    await clock.elapse(1)
    for _ in range(1000):
        refresher.wake()
        await clock.elapse(0.001)
    assert 3 <= refreshes.count - 1 <= 5
    await refresher.stop()


async def test_a_report_during_a_refresh_makes_another_one() -> None:
    clock, refreshes = FakeClock(), Refreshes()
    refreshes.gate = asyncio.Event()
    starting = asyncio.create_task(started(refreshes, clock))
    await settle()
    clock.advance(1)
    refresher = await starting
    refresher.wake()
    refreshes.gate.set()
    await clock.elapse(0.3)
    assert refreshes.count == 2
    await refresher.stop()


async def test_a_start_waits_no_longer_than_its_patience() -> None:
    clock, refreshes = FakeClock(), Refreshes()
    refreshes.gate = asyncio.Event()
    starting = asyncio.create_task(started(refreshes, clock))
    await clock.elapse(0.9)
    assert not starting.done()
    await clock.elapse(0.2)
    refresher = await starting
    await refresher.stop()
    assert refreshes.running == 0


async def test_a_fault_in_a_refresh_is_logged_and_does_not_end_discovery(caplog: pytest.LogCaptureFixture) -> None:
    clock, refreshes = FakeClock(), Refreshes()
    refreshes.answer = ZeroDivisionError()
    refresher = await started(refreshes, clock)
    refreshes.answer = True
    await clock.elapse(1)
    assert refreshes.count == 2
    assert "ZeroDivisionError" in caplog.text
    await refresher.stop()


async def test_one_client_an_address_is_kept_until_it_is_not_wanted() -> None:
    clients = Clients(Account())
    first = clients.at(Address("127.0.0.1", 1))
    assert clients.at(Address("127.0.0.1", 1)) is first
    await clients.retain([])
    assert clients.at(Address("127.0.0.1", 1)) is not first
    await clients.close()


async def test_a_name_is_resolved_to_addresses_and_an_unknown_one_to_none() -> None:
    assert Address("127.0.0.1", 7000) in await resolve(Address("localhost", 7000))
    assert await resolve(Address("127.0.0.1", 7000)) == (Address("127.0.0.1", 7000),)
    assert await resolve(Address("no-such-name.invalid", 7000)) == ()


@pytest.mark.parametrize("host", ["replica..example.com", ".example.com", "a" * 64 + ".example.com", "a\x00b"])
async def test_a_name_that_no_name_server_can_be_asked_for_is_resolved_to_nothing(host: str) -> None:
    assert await resolve(Address(host, 7000)) == ()


def test_an_account_keeps_its_password_out_of_its_repr() -> None:
    assert "hunter2" not in repr(Account(username="bob", password="hunter2"))
