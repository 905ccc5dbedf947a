"""What commands have in common: SIGTERM ends them as Ctrl-C does, whatever runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from gateway.terminal import interruptible


@pytest.fixture
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGTERM) is before[0]
    signal.signal(signal.SIGINT, before[1])


@pytest.mark.parametrize("on_ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.usefixtures("_signals")
def test_sigterm_is_ctrl_c_even_where_that_is_ignored(on_ctrl_c: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, on_ctrl_c)
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("on_ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.usefixtures("_signals")
def test_tasks_that_run_are_cancelled_and_tidy_up(on_ctrl_c: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, on_ctrl_c)
    tidied: list[str] = []

    async def run() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            tidied.append("tidied")

    with pytest.raises(KeyboardInterrupt), interruptible():
        asyncio.run(run())
    assert tidied == ["tidied"]
