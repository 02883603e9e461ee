"""Looks at stores on this machine, each in its own process: a page asks for a summary and gets it; a
verification continues behind it, one for each store, and the latest is remembered.

Only directories that the settings name are opened.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from pyromq.admin.local_stores import Line, ReadProgress, Summary, UnreadableStore, Verdict
from pyromq.clock import Clock
from pyromq.errors import ConfigError

_SUMMARY_S = 20.0
_LIMIT = 4 * 1024 * 1024


class VerificationJob(msgspec.Struct, rename="camel"):
    """One that runs, until it has a verdict or a problem."""

    by: str
    started_ms: int
    ended_ms: int | None = None
    progress: ReadProgress | None = None
    verdict: Verdict | None = None
    problem: str = ""

    @property
    def is_running(self) -> bool:
        return self.ended_ms is None


class StoreJobs:
    def __init__(self, directories: list[Path], clock: Clock) -> None:
        self.directories = directories
        self.verifications: dict[Path, VerificationJob] = {}
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        running = sum(each.is_running for each in self.verifications.values())
        return f"<StoreJobs of {len(self.directories)} stores running={running}>"

    async def summary(self, directory: Path) -> Summary | UnreadableStore:
        try:
            async with asyncio.timeout(_SUMMARY_S):
                found = await _looked("summary", directory, lambda _: None)
        except TimeoutError:
            return UnreadableStore(f"it was not read within {_SUMMARY_S:.0f} s")
        return found if isinstance(found, Summary | UnreadableStore) else UnreadableStore("no summary")

    def require(self, directory: str) -> Path:
        """The directory of the settings with this name."""
        for each in self.directories:
            if str(each) == directory:
                return each
        known = ", ".join(map(str, self.directories)) or "none: localStores is not set"
        raise ConfigError("directory", directory, f"one of the stores that the settings name ({known})")

    def verify(self, directory: Path, by: str) -> VerificationJob:
        """Start to verify a store; a run that is under way already is returned as it is."""
        known = self.verifications.get(directory)
        if known is not None and known.is_running:
            return known
        started = self.verifications[directory] = VerificationJob(by, self._clock.now_ms())
        task = asyncio.create_task(self._verify(directory, started), name=f"console verify {directory}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return started

    async def _verify(self, directory: Path, run: VerificationJob) -> None:
        def follow(progress: ReadProgress) -> None:
            run.progress = progress

        try:
            found = await _looked("verify", directory, follow)
            if isinstance(found, Verdict):
                run.verdict = found
            else:
                run.problem = (
                    found.problem if isinstance(found, UnreadableStore) else "it ended without a verdict"
                )
        except (OSError, ValueError) as problem:
            run.problem = str(problem)
        finally:
            run.ended_ms = self._clock.now_ms()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _looked(what: str, directory: Path, follow: Callable[[ReadProgress], None]) -> Line | None:
    """The last line of the process; it is killed if its caller is cancelled, even while it starts."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "pyromq.admin.local_stores",
            what,
            str(directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            limit=_LIMIT,
        )
    )
    last: Line | None = None
    try:
        process = await asyncio.shield(starting)
        assert process.stdout is not None
        async for line in process.stdout:
            last = msgspec.json.decode(line, type=Line)
            if isinstance(last, ReadProgress):
                follow(last)
        await process.wait()
        return last
    finally:
        process = await starting
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
