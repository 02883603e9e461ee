"""A real cluster for tests: real sockets, real files, gone afterwards.

from pyromq.testing import cluster

with cluster() as running:                      # or the pytest fixture `rocketmq`
    Producer("orders", namesrv=running.namesrv)
"""

from pyromq.testing.cluster import RunningCluster, cluster

__all__ = ["RunningCluster", "cluster"]
