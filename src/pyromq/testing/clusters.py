"""Clusters that run for a `with` block, on the event loop of a test or on their own thread.

The system chooses the ports, and they stay reserved until the block ends, also while a broker is down.
Files are small.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pyromq.broker.settings import vip_port
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.held_ports import held_port

T = TypeVar("T")
Flush = Literal["async", "sync"]

_LOG_SEGMENT_BYTES = 5 * 1024 * 1024
"""Small, but the largest message (`maxMessageSize`) fits."""
_INDEX_SLOTS, _INDEX_UNITS = 10_000, 40_000


class RunningCluster:
    """A cluster that any thread may use; brokers are numbered from 0."""

    def __init__(self, settings: StandaloneSettings) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rocketmq-cluster", daemon=True)
        self._thread.start()
        self._cluster = Standalone(settings)
        try:
            self._call(self._cluster.start())
        except BaseException:
            self._end_loop()
            raise

    def __repr__(self) -> str:
        return f"<RunningCluster {self._cluster!r}>"

    @property
    def namesrv(self) -> str:
        """The address of the name server, for clients."""
        return self._cluster.namesrv

    @property
    def broker_address(self) -> str:
        """The address of the first running broker."""
        return self._cluster.broker.advertised_address

    @property
    def broker_addresses(self) -> list[str]:
        return [broker.advertised_address for broker in self._cluster.brokers]

    @property
    def store(self) -> Path:
        """The directory of all files."""
        return self._cluster.settings.store

    def restart(self) -> None:
        """Stop everything and start it again, on the same ports and with the same files."""
        self._call(self._cluster.stop())
        self._call(self._cluster.start())

    def stop_broker(self, number: int = 0) -> None:
        """Stop one broker gracefully."""
        self._call(self._cluster.stop_broker(number))

    def kill_broker(self, number: int = 0) -> None:
        """Stop one broker as a crash would: it does not unregister and writes nothing more."""
        self._call(self._cluster.kill_broker(number))

    def start_broker(self, number: int = 0) -> None:
        """Start a broker that was stopped or killed, on the same port and with the same files."""
        self._call(self._cluster.start_broker(number))

    # Fail-over, with `replicas`

    @property
    def master(self) -> int:
        """The number of the master now; the first broker name's, if there are several names."""
        return self._cluster.master_number()

    def kill_master(self, broker_name: str | None = None) -> int:
        """Kill the master: another replica takes over. Returns its number, for `start_broker`."""
        return self._call(self._cluster.kill_master(broker_name))

    def wait_in_sync(self) -> None:
        """Wait until every running broker could take over without a loss."""
        self._call(self._cluster.wait_in_sync())

    def stop(self) -> None:
        try:
            self._call(self._cluster.stop())
        finally:
            self._end_loop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def cluster(
    store: Path | None = None, *, brokers: int = 1, replicas: int = 1, flush: Flush = "async", **broker: Any
) -> Iterator[RunningCluster]:
    """Run a cluster during the block; without a `store` its files are removed afterwards.

    With `replicas`, each broker name has so many brokers, the master among them, and a controller.
    Other arguments are broker settings, by their names in Python.
    """
    with _directory(store) as directory, _settings(directory, brokers, replicas, flush, broker) as settings:
        running = RunningCluster(settings)
        try:
            yield running
        finally:
            running.stop()


@asynccontextmanager
async def aio_cluster(
    store: Path | None = None, *, brokers: int = 1, replicas: int = 1, flush: Flush = "async", **broker: Any
) -> AsyncIterator[Standalone]:
    """The same on the running event loop."""
    with _directory(store) as directory, _settings(directory, brokers, replicas, flush, broker) as settings:
        async with Standalone(settings) as running:
            yield running


@contextmanager
def _directory(store: Path | None) -> Iterator[Path]:
    if store is not None:
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="pyromq-") as directory:
        yield Path(directory)


@contextmanager
def _settings(
    store: Path, brokers: int, replicas: int, flush: Flush, broker: dict[str, Any]
) -> Iterator[StandaloneSettings]:
    settings = StandaloneSettings(
        store=store,
        brokers=brokers,
        replicas=replicas,
        flush=flush,
        broker=broker,
        store_settings={
            "log_segment_bytes": _LOG_SEGMENT_BYTES,
            "index_slots": _INDEX_SLOTS,
            "index_units": _INDEX_UNITS,
        },
    )
    with on_held_ports(settings) as settled:
        yield settled


@contextmanager
def on_held_ports(settings: StandaloneSettings) -> Iterator[StandaloneSettings]:
    """The same settings with ports that stay the cluster's own while the block runs."""
    first = settings.broker_port_of(0)
    mains = [settings.broker_port_of(number) - first for number in range(settings.broker_count)]
    fast = [vip_port(first + distance) - first for distance in mains]
    ha = [distance + 1 for distance in mains]
    with held_port() as namesrv_port, held_port((*mains, *fast, *ha)) as broker_port:
        yield replace(settings, namesrv_port=namesrv_port, broker_port=broker_port)
