"""A real cluster for tests: real sockets, real files, gone afterwards.

from pyromq.testing import cluster

with cluster() as running:                      # or the pytest fixture `rocketmq`
    Producer("orders", namesrv=running.namesrv)

async with aio_cluster() as running:            # on the test's own event loop
    ...
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyromq.testing.clusters import RunningCluster, aio_cluster, cluster

__all__ = ["RunningCluster", "aio_cluster", "cluster"]


def __getattr__(name: str) -> Any:
    """Every run of pytest imports this package for its plugin; only tests that use it pay for a broker."""
    if name in __all__:
        from pyromq.testing import clusters

        return getattr(clusters, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
