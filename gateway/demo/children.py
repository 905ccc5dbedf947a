"""The demo's child processes: started apart from the terminal, stopped in order, never left behind.

Knows: asyncio's subprocesses, the keeper.
Must not know: what the programs do.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gateway.demo import keeper


class Children:
    """A temporary folder and the processes that live in it; leaving the context ends both.

    The children have sessions of their own: Ctrl-C in a terminal reaches the demo alone, which stops them in order.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="leaderboard-gateway-demo-"))
        self._keeper: Process | None = None
        self._living: list[Process] = []

    async def __aenter__(self) -> Children:
        """Start the keeper, before anything that it would have to tidy up."""
        try:
            self._keeper = await asyncio.create_subprocess_exec(
                sys.executable, "-I", keeper.__file__, str(self.folder), stdin=PIPE, start_new_session=True
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the children, the last first, then the keeper, and remove the folder."""
        for process in reversed(self._living.copy()):
            await self.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            await self._keeper.wait()

    async def spawn(self, name: str, *command: str | Path, environ: Mapping[str, str] | None = None) -> Process:
        """Start a program; what it prints goes to ``name.log`` in the folder."""
        with self._log(name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environ,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._living.append(process)
        self._tell(f"+{process.pid}\n")
        return process

    async def stop(self, process: Process, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal and wait for the end; kill what does not end in time."""
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(keeper.STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self.forget(process)

    def forget(self, process: Process) -> None:
        """Note that a process has ended."""
        if process in self._living:
            self._living.remove(process)
            self._tell(f"-{process.pid}\n")

    def last_words(self, name: str) -> str:
        """Return the last line that the program of this name printed."""
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _tell(self, line: str) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            with suppress(ConnectionError):
                self._keeper.stdin.write(line.encode())
