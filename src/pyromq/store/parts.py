"""The files of a store and all that follows from the log, as one value."""

from dataclasses import dataclass

from pyromq.filesystem import Files
from pyromq.store.compacted.snapshots import Snapshots
from pyromq.store.deletions import Deletions
from pyromq.store.dispatch import Dispatcher
from pyromq.store.filenames import StorePaths
from pyromq.store.index.key_index import Index
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.log_time import LogTime
from pyromq.store.queues.all_queues import Queues


@dataclass(frozen=True, slots=True, eq=False)
class StoreParts:
    files: Files
    paths: StorePaths
    log: CommitLog
    queues: Queues
    index: Index | None
    dispatcher: Dispatcher
    deletions: Deletions
    time: LogTime
    purges: Deletions
    erasures: Deletions
    snapshots: Snapshots
