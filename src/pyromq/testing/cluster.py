"""A cluster on a thread of its own, for tests that have no event loop."""

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from pyromq.standalone import Standalone, StandaloneSettings

T = TypeVar("T")

_LOG_SEGMENT_BYTES = 4 * 1024 * 1024
_INDEX_SLOTS, _INDEX_UNITS = 10_000, 40_000


class RunningCluster:
    """A cluster that can be reached from any thread."""

    def __init__(self, settings: StandaloneSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rocketmq-cluster", daemon=True)
        self._thread.start()
        self._cluster: Standalone | None = None
        try:
            self._call(self._start())
        except BaseException:
            self._end_loop()
            raise

    def __repr__(self) -> str:
        return f"<RunningCluster {self._cluster!r}>"

    @property
    def namesrv(self) -> str:
        """What clients are given."""
        return self._running.namesrv

    @property
    def broker_address(self) -> str:
        return self._running.broker.advertised_address

    @property
    def store(self) -> Path:
        return self._settings.store

    @property
    def _running(self) -> Standalone:
        assert self._cluster is not None
        return self._cluster

    def restart(self) -> None:
        """Stop and start again, on the same ports and with the same files."""
        namesrv_port = self._running.name_server.address[1]
        broker_port = self._running.broker.address[1]
        self._call(self._stop())
        changes = {"namesrv_port": namesrv_port, "broker_port": broker_port}
        kept = {name: getattr(self._settings, name) for name in StandaloneSettings.__slots__}
        self._settings = StandaloneSettings(**kept | changes)
        self._call(self._start())

    def stop(self) -> None:
        self._call(self._stop())
        self._end_loop()

    async def _start(self) -> None:
        self._cluster = Standalone(self._settings)
        await self._cluster.start()

    async def _stop(self) -> None:
        await self._running.stop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def cluster(
    store: Path | None = None, *, flush: Literal["async", "sync"] = "async", **broker: Any
) -> Iterator[RunningCluster]:
    """Run a cluster while the block runs; without a `store` its files are removed afterwards.

    Further arguments are settings of the broker by their names in Python.
    """
    if store is None:
        with (
            tempfile.TemporaryDirectory(prefix="pyromq-") as directory,
            cluster(Path(directory), flush=flush, **broker) as running,
        ):
            yield running
        return
    settings = StandaloneSettings(
        store=store,
        namesrv_port=0,
        broker_port=0,
        flush=flush,
        broker=broker,
        store_settings={
            "log_segment_bytes": _LOG_SEGMENT_BYTES,
            "index_slots": _INDEX_SLOTS,
            "index_units": _INDEX_UNITS,
        },
    )
    running = RunningCluster(settings)
    try:
        yield running
    finally:
        running.stop()
