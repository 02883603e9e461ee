"""A real cluster for tests, with real sockets and files, removed afterwards.

from pyromq.testing import cluster

with cluster() as running:                      # or the pytest fixture `rocketmq`
    Producer("orders", namesrv=running.namesrv)

async with aio_cluster() as running:            # on the test's own event loop
    await running.advance(hours=2)              # retries, delays and timers are due
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyromq.testing.aio_clusters import AioCluster
    from pyromq.testing.clusters import RunningCluster, aio_cluster, cluster

__all__ = ["AioCluster", "RunningCluster", "aio_cluster", "cluster"]


def __getattr__(name: str) -> Any:
    """pytest always imports this package for its plugin, so the broker is imported only on use."""
    if name in __all__:
        from pyromq.testing import clusters

        return getattr(clusters, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
