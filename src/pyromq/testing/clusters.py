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
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pyromq.broker.settings import BrokerSettings, vip_port
from pyromq.client.dead_letters import DeadLetter
from pyromq.clock import TravellingClock
from pyromq.config.nearest import NearestName
from pyromq.standalone import StandaloneSettings
from pyromq.store.settings import StoreSettings
from pyromq.testing.aio_clusters import AioCluster, shared_clock
from pyromq.testing.held_ports import held_port

T = TypeVar("T")
Flush = Literal["async", "sync"]

_LOG_SEGMENT_BYTES = 5 * 1024 * 1024
"""Small, but the largest message (`maxMessageSize`) fits."""
_INDEX_SLOTS, _INDEX_UNITS = 10_000, 40_000


class RunningCluster:
    """A cluster that any thread may use; brokers are numbered from 0."""

    def __init__(self, settings: StandaloneSettings, clock: TravellingClock) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rocketmq-cluster", daemon=True)
        self._thread.start()
        self._cluster = AioCluster(settings, clock)
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

    # Time and consumption

    def now(self) -> datetime:
        """The time of the cluster and its clients, in UTC."""
        return self._cluster.now()

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass at once. Retries, delayed and timed messages, and popped ones that were not
        acknowledged, are in their queues when this returns, if they are due. Producers are asked about
        transactions that have been open for too long."""
        self._call(self._cluster.advance(days=days, hours=hours, minutes=minutes, seconds=seconds))

    def wait_until_consumed(self, group: str, topic: str | None = None, *, timeout_s: float = 30) -> None:
        """Return when a group has nothing left to do: in its topics or in one, retries included.

        Retries that wait for their time are not counted: `advance` makes them due. Raises StateError, with
        what is left, after `timeout_s`.
        """
        self._call(self._cluster.wait_until_consumed(group, topic, timeout_s=timeout_s))

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """The messages that the group gave up, without those sent again or dropped, in the order of time."""

        async def find() -> list[DeadLetter]:
            return self._cluster.dead_letters(group)

        return self._call(find())

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
    store: Path | None = None, *, brokers: int = 1, replicas: int = 1, flush: Flush = "async", **settings: Any
) -> Iterator[RunningCluster]:
    """Run a cluster during the block; without a `store` its files are removed afterwards.

    With `replicas`, each broker name has that many brokers, the master included, and a controller.
    Other arguments are settings of brokers and their stores, by their names in Python.
    """
    with (
        _directory(store) as directory,
        _settings(directory, brokers, replicas, flush, settings) as chosen,
        shared_clock() as clock,
    ):
        running = RunningCluster(chosen, clock)
        try:
            yield running
        finally:
            running.stop()


@asynccontextmanager
async def aio_cluster(
    store: Path | None = None, *, brokers: int = 1, replicas: int = 1, flush: Flush = "async", **settings: Any
) -> AsyncIterator[AioCluster]:
    """The same on the running event loop."""
    with (
        _directory(store) as directory,
        _settings(directory, brokers, replicas, flush, settings) as chosen,
        shared_clock() as clock,
    ):
        async with AioCluster(chosen, clock) as running:
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
    store: Path, brokers: int, replicas: int, flush: Flush, given: dict[str, Any]
) -> Iterator[StandaloneSettings]:
    of_stores = {each.name for each in StoreSettings.all_settings() if each.name}
    of_brokers = {each.name for each in BrokerSettings.all_settings() if each.name}
    for name in given:
        if name not in of_stores | of_brokers:
            otherwise = "docs/reference lists all, with their names in Python"
            hint = NearestName(of_stores | of_brokers).hint(name, otherwise)
            raise TypeError(f"no broker or store has a setting {name!r}: {hint}")
    settings = StandaloneSettings(
        store=store,
        brokers=brokers,
        replicas=replicas,
        flush=flush,
        broker={name: value for name, value in given.items() if name in of_brokers},
        store_settings={
            "log_segment_bytes": _LOG_SEGMENT_BYTES,
            "index_slots": _INDEX_SLOTS,
            "index_units": _INDEX_UNITS,
            **{name: value for name, value in given.items() if name in of_stores},
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
