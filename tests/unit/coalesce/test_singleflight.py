"""SingleFlight's seven rules, one or more tests each. No test waits for a clock: gates are events."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gateway.coalesce.singleflight import SingleFlight


class Load:
    """A load that ends when told to, and counts its calls."""

    def __init__(self, value: str = "value", error: Exception | None = None) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.value = value
        self.error = error

    async def __call__(self) -> str:
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.value


async def settle(turns: int = 5) -> None:
    """Let every ready task run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def call(flights: SingleFlight[str, str], load: Callable[[], Coroutine[Any, Any, str]]) -> asyncio.Task[str]:
    async def caller() -> str:
        return await flights.join("key", load)[0].wait()

    return asyncio.create_task(caller())


async def test_many_callers_share_one_load() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    callers = [call(flights, load) for _ in range(10_000)]
    await settle()
    assert flights.waiters == 10_000
    load.gate.set()
    assert set(await asyncio.gather(*callers)) == {"value"}
    assert load.calls == flights.started == 1


async def test_the_result_says_whether_it_was_shared() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    first, shared_first = flights.join("key", load)
    second, shared_second = flights.join("key", load)
    assert (shared_first, shared_second) == (False, True)
    assert first is second
    load.gate.set()
    await first.wait()


async def test_keys_do_not_share() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    load.gate.set()
    assert flights.join("a", load)[0] is not flights.join("b", load)[0]
    await flights.drain(1)
    assert load.calls == 2


@pytest.mark.parametrize("leaver", [0, 1, 49])
async def test_cancelling_any_caller_disturbs_nobody(leaver: int) -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    callers = [call(flights, load) for _ in range(50)]
    await settle()
    callers[leaver].cancel()
    await settle()
    load.gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(results.pop(leaver), asyncio.CancelledError)
    assert results == ["value"] * 49
    assert load.calls == 1


async def test_the_load_goes_on_when_every_caller_left_and_who_comes_back_joins_it() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    callers = [call(flights, load) for _ in range(3)]
    await settle()
    for caller in callers:
        caller.cancel()
    await settle()
    assert len(flights) == 1
    returned = call(flights, load)
    await settle()
    load.gate.set()
    assert await returned == "value"
    assert load.calls == 1


async def test_an_error_reaches_every_waiter_and_is_not_remembered() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load(error=ValueError("down"))
    callers = [call(flights, load) for _ in range(100)]
    await settle()
    load.gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(result, ValueError) for result in results)
    assert load.calls == 1
    load.error = None
    assert await call(flights, load) == "value"


async def test_many_raisers_do_not_lengthen_the_errors_traceback() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    error = ValueError("down")
    load = Load(error=error)
    callers = [call(flights, load) for _ in range(200)]
    await settle()
    load.gate.set()
    await asyncio.gather(*callers, return_exceptions=True)
    depth, frame = 0, error.__traceback__
    while frame is not None:
        depth, frame = depth + 1, frame.tb_next
    assert depth < 10


async def test_an_error_is_retrieved_even_if_no_waiter_is_left() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load(error=ValueError("down"))
    caller = call(flights, load)
    await settle()
    caller.cancel()
    load.gate.set()
    await settle()
    del caller, load
    gc.collect()
    await settle()
    assert complaints == []
    assert len(flights) == 0


async def test_a_landing_flight_leaves_its_successor_in_place() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    former, new = Load("former"), Load("new")
    first, _ = flights.join("key", former)
    flights.forget("key")
    second, shared = flights.join("key", new)
    assert not shared
    former.gate.set()
    assert await first.wait() == "former"
    await settle()
    assert flights.get("key") is second
    new.gate.set()
    assert await second.wait() == "new"
    await settle()
    assert flights.get("key") is None


async def test_a_load_that_outlasts_its_own_deadline_fails_for_everyone() -> None:
    flights: SingleFlight[str, str] = SingleFlight(deadline_s=0)
    callers = [call(flights, Load()) for _ in range(3)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(result, TimeoutError) for result in results)


async def test_a_callers_time_out_bounds_that_callers_wait_only() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    load = Load()
    patient = call(flights, load)
    flight, _ = flights.join("key", load)
    with pytest.raises(TimeoutError):
        await flight.wait(0)
    load.gate.set()
    assert await patient == "value"
    assert load.calls == 1


async def test_a_load_runs_in_a_clean_context() -> None:
    request_id = contextvars.ContextVar("request_id", default="none")
    request_id.set("of the first caller")

    async def load() -> str:
        return request_id.get()

    flights: SingleFlight[str, str] = SingleFlight()
    assert await call(flights, load) == "none"


async def test_draining_waits_for_what_ends_in_time_and_cancels_the_rest() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    quick, hanging = Load(), Load()
    quick.gate.set()
    flights.join("quick", quick)
    caller = asyncio.create_task(flights.join("hanging", hanging)[0].wait())
    await settle()
    await flights.drain(0)
    assert len(flights) == 0
    assert quick.calls == hanging.calls == 1
    with pytest.raises(asyncio.CancelledError):
        await caller
