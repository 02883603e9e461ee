"""The filters of this server: one for each group and topic, the last that was uploaded.

A filter that took too much rests for a while; its pulls are refused meanwhile, with the reason. An unused
filter is forgotten: its consumers upload it again.
"""

import asyncio
import logging
from collections.abc import Sequence

from pyromq.clock import Clock
from pyromq.errors import Refused
from pyromq.filterserver.exchange import FilterSource
from pyromq.filterserver.filter_process import FilterFailed, FilterProcess
from pyromq.filterserver.metering import FilterMetering
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.protocol.codes import ResponseCode

_log = logging.getLogger(__name__)

_SCAN_INTERVAL_S = 10.0


class UploadedFilter:
    """One filter and its process, which runs one question at a time."""

    def __init__(self, source: FilterSource, process: FilterProcess, used_at: float) -> None:
        self.source = source
        self.process: FilterProcess | None = process
        self.turn = asyncio.Lock()
        self.used_at = used_at
        self.rests_until = 0.0
        self.problem = ""
        self.is_replaced = False

    def __repr__(self) -> str:
        return f"<UploadedFilter {self} {self.process!r}>"

    def __str__(self) -> str:
        return f"filter {self.source.name} of {self.source.group} for {self.source.topic}"


class Filters:
    def __init__(self, settings: FilterServerSettings, clock: Clock, metering: FilterMetering) -> None:
        self._settings = settings
        self._limits = settings.filter_limits
        self._clock = clock
        self._metering = metering
        self._filters: dict[tuple[str, str], UploadedFilter] = {}
        self._uploading = asyncio.Lock()
        metering.watch_filters(self.count)

    def __repr__(self) -> str:
        return f"<Filters {[str(each) for each in self._filters.values()]}>"

    def count(self) -> int:
        return len(self._filters)

    def find(self, group: str, topic: str) -> UploadedFilter | None:
        found = self._filters.get((group, topic))
        if found is not None:
            found.used_at = self._clock.monotonic()
        return found

    async def put(self, source: FilterSource) -> None:
        """Take a filter in the place of the one before; raises Refused if it cannot run."""
        key = (source.group, source.topic)
        async with self._uploading:
            before = self.find(*key)
            if before is not None and before.source == source:
                return
            if before is None and len(self._filters) >= self._settings.max_filters:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"this filter server has {len(self._filters)} filters, and takes no more",
                )
            try:
                process = await self._started(source)
            except FilterFailed as problem:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"the filter cannot be used: {problem}") from None
            self._filters[key] = UploadedFilter(source, process, self._clock.monotonic())
            if before is not None:
                await _retire(before)

    async def match(
        self, used: UploadedFilter, queue_id: int, records: Sequence[bytes | memoryview]
    ) -> list[bool]:
        """The verdict on each record; raises Refused."""
        async with used.turn:
            if (rest_s := used.rests_until - self._clock.monotonic()) > 0:
                raise _refusal(used, f"{used.problem}. It runs again in {rest_s:.0f} s")
            try:
                if used.process is None:
                    used.process = await self._started(used.source)
                verdicts = await used.process.match(queue_id, records)
            except FilterFailed as problem:
                self._failed(used, problem)
                raise _refusal(used, str(problem)) from None
            finally:
                if used.process is not None and (used.process.is_over or used.is_replaced):
                    await used.process.end()
                    used.process = None
        return verdicts

    def _failed(self, used: UploadedFilter, problem: FilterFailed) -> None:
        self._metering.failures.add(("ended" if problem.is_over else "error",))
        if not problem.is_over:
            _log.warning("%s failed: %s", used, problem)
            return
        rest_s = self._settings.filter_rest_seconds
        used.rests_until, used.problem = self._clock.monotonic() + rest_s, f"it was ended: {problem}"
        _log.warning("%s was ended, it rests for %.0f s: %s", used, rest_s, problem)

    async def _started(self, source: FilterSource) -> FilterProcess:
        process = await FilterProcess.start(self._limits, is_module=source.is_module)
        try:
            await process.load(source)
        except BaseException:
            await process.end()
            raise
        return process

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_SCAN_INTERVAL_S)
            await self.forget_idle()
            await self.end_those_that_go_on()

    async def forget_idle(self) -> None:
        before = self._clock.monotonic() - self._settings.filter_idle_seconds
        for key, each in list(self._filters.items()):
            if each.used_at < before and not each.turn.locked():
                del self._filters[key]
                _log.info("%s is forgotten: no consumer used it", each)
                await _retire(each)

    async def end_those_that_go_on(self) -> None:
        """End filters that compute although they are asked nothing: one may write an answer and continue."""
        for used in list(self._filters.values()):
            process = used.process
            if process is None or used.turn.locked() or not process.goes_on:
                continue
            used.process = None
            self._failed(used, FilterFailed("it went on computing after its answer", is_over=True))
            await process.end()

    async def close(self) -> None:
        while self._filters:
            await _retire(self._filters.popitem()[1])


async def _retire(former: UploadedFilter) -> None:
    """End its process, at the latest after the question that it has now."""
    former.is_replaced = True
    process = former.process
    if process is not None and not former.turn.locked():
        former.process = None
        await process.end()


def _refusal(used: UploadedFilter, why: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"{used}: {why}")
