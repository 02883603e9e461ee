"""A topic's life on Spark: the streaming queries whose checkpoints the settings name, against brokers; and
the runs of pipelines that read it.

Checkpoints are plain files, read in a thread; there is no Spark here.
"""

import asyncio
from shlex import join

from pyromq.admin import checkpoints
from pyromq.admin.checkpoints import QueryCheckpoint
from pyromq.console.page import Data
from pyromq.console.pages import pipelines
from pyromq.console.visit import Visit

_JOBS = (
    ("archive", "lake/", "-t"),
    ("history", "lake/", "-t"),
    ("replay", "lake/", "--to"),
)
"""Jobs that take a topic: name, an example of their directory, and the option."""


async def show(visit: Visit) -> Data:
    topic = visit.path["topic"]
    directories = visit.state.settings.checkpoint_directories()
    found = await asyncio.to_thread(checkpoints.reading, directories, topic)
    queries = [await _query(visit, each, topic) for each in found]
    assert visit.shown is not None
    return {
        "topic": topic,
        "view": visit.snapshot.topics.get(topic),
        "queries": queries,
        "runs": await pipelines.those(visit, lambda run: run.reads(topic)),
        "directories": len(directories),
        "commands": commands(visit.shown.namesrv, topic),
    }


def commands(namesrv: str, topic: str) -> list[str]:
    """The jobs for a topic, to copy."""
    return [
        join(["pyromq", "pipeline", job, place, option, topic, "-n", namesrv]) for job, place, option in _JOBS
    ]


async def _query(visit: Visit, checkpoint: QueryCheckpoint, topic: str) -> Data:
    gaps = [] if checkpoint.problem else await checkpoints.gaps(visit.cluster, checkpoint, topic)
    unread = [gap.unread for gap in gaps]
    lost = [gap.lost for gap in gaps]
    return {
        "directory": checkpoint.directory,
        "problem": checkpoint.problem,
        "batch": checkpoint.batch,
        "planned_ms": checkpoint.planned_ms,
        "committed_batch": checkpoint.committed_batch,
        "committed_ms": checkpoint.committed_ms,
        "is_running": checkpoint.is_running,
        "unread": None if None in unread else sum(each or 0 for each in unread),
        "lost": None if None in lost else sum(each or 0 for each in lost),
        "queues": [
            {
                "broker": gap.queue.broker_name,
                "queue": gap.queue.queue_id,
                "position": gap.position,
                "end": gap.end,
                "unread": gap.unread,
                "lost": gap.lost,
            }
            for gap in gaps
        ],
    }
