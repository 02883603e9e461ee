"""The clusters of the settings, each with its connections and its watch."""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from pyromq.admin.cluster import Cluster
from pyromq.clock import Clock
from pyromq.console.guarded import GuardedCluster
from pyromq.console.settings import ConsoleSettings
from pyromq.console.watch.values import Snapshot
from pyromq.console.watch.watch import Watch
from pyromq.remoting.slices import Slices

_MAX_KEPT: Final = 100
"""Lists that are kept at once: their URLs are the viewers' choice."""


class ShownCluster:
    """One cluster: `cluster` for what a page asks, `watch` for what all pages share."""

    def __init__(self, name: str, cluster: Cluster, watch: Watch) -> None:
        self.name = name
        self.cluster = cluster
        self.watch = watch
        self._kept: dict[Hashable, list[Any]] = {}
        self._kept_version = -1
        watch.on_snapshot(lambda _: self._kept.clear())  # the watch frees what only they would hold

    def __repr__(self) -> str:
        return f"<ShownCluster {self.name} {self.cluster!r}>"

    @property
    def snapshot(self) -> Snapshot:
        return self.watch.snapshot

    def kept_list(self, key: Hashable, make: Callable[[], list[Any]]) -> list[Any]:
        """A list made of the snapshot, kept for all viewers until the next one."""
        if self._kept_version != self.snapshot.version or len(self._kept) >= _MAX_KEPT:
            self._kept, self._kept_version = {}, self.snapshot.version
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
        return found

    @property
    def namesrv(self) -> str:
        return ";".join(self.cluster.name_servers)


class Clusters(Mapping[str, ShownCluster]):
    def __init__(self, settings: ConsoleSettings, clock: Clock, turns: Slices) -> None:
        self._shown: dict[str, ShownCluster] = {}
        for name, addresses in settings.cluster_addresses().items():
            cluster = GuardedCluster(
                addresses,
                timeout_s=settings.timeout_seconds,
                credentials=settings.credentials_of(name),
                tls=settings.tls(),
                clock=clock,
            )
            cluster.dialled = settings.dialled()
            self._shown[name] = ShownCluster(name, cluster, Watch(cluster, name=name, turns=turns))
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
