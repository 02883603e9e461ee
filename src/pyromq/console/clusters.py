"""The clusters of the settings, each with its connections and its watch."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress

from pyromq.admin.cluster import Cluster
from pyromq.clock import Clock
from pyromq.console.settings import ConsoleSettings
from pyromq.console.watch.values import Snapshot
from pyromq.console.watch.watch import Watch


class ShownCluster:
    """One cluster: `cluster` for what a page asks, `watch` for what all pages share."""

    def __init__(self, name: str, cluster: Cluster, watch: Watch) -> None:
        self.name = name
        self.cluster = cluster
        self.watch = watch

    def __repr__(self) -> str:
        return f"<ShownCluster {self.name} {self.cluster!r}>"

    @property
    def snapshot(self) -> Snapshot:
        return self.watch.snapshot

    @property
    def namesrv(self) -> str:
        return ";".join(self.cluster.name_servers)


class Clusters(Mapping[str, ShownCluster]):
    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._shown: dict[str, ShownCluster] = {}
        for name, addresses in settings.cluster_addresses().items():
            cluster = Cluster(
                addresses,
                timeout_s=settings.timeout_seconds,
                credentials=settings.credentials(),
                tls=settings.tls(),
                clock=clock,
            )
            self._shown[name] = ShownCluster(name, cluster, Watch(cluster, name=name))
        self._open = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Clusters {', '.join(self._shown)}>"

    def __getitem__(self, name: str) -> ShownCluster:
        return self._shown[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    async def open(self) -> None:
        for shown in self._shown.values():
            await self._open.enter_async_context(shown.cluster)
            await self._open.enter_async_context(shown.watch)
            watching = asyncio.create_task(shown.watch.run(), name=f"console watch {shown.name}")
            self._open.push_async_callback(_end, watching)

    async def close(self) -> None:
        await self._open.aclose()


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
