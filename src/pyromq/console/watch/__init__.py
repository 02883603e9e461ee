"""The console's data: a poller fills one snapshot for all viewers.

    async with Cluster("127.0.0.1:9876", timeout_s=3.0) as cluster, Watch(cluster, name="main") as watch:
        task = asyncio.create_task(watch.run())
        watch.snapshot                  # frozen values, see `values.py`; `is_first` until it knows something
        await watch.first(2.0)          # waits for the first one
        watch.on_snapshot(listener)     # called with each new one, at most once a second
        watch.readings("group", "billing", "lag", 3600.0)  # for charts
        watch.open_topic("orders")      # its page is open: keep its history
        watch.changed_something()       # after a write: ask again soon

Pages read `watch.snapshot` and ask nothing: however many viewers, topics and groups there are, the cluster
gets the same requests. A snapshot never changes; the next one replaces it. Everything in it has its
`LastAnswer`: when it was reported, and why the latest question failed. A figure that no server reports is
None.

Lists: `snapshot.brokers`, `.topics[name]`, `.groups[name]`, `.name_servers`, `.problems`. The texts of
problems are the pages' own, by `Problem.kind` (all kinds are in `problems.KINDS`). Tests use
`await watch.look()`, which asks whatever is due, waits and joins.
"""

from pyromq.console.watch.values import Snapshot
from pyromq.console.watch.watch import Pace, Watch

__all__ = ["Pace", "Snapshot", "Watch"]
