"""Runs of `pyromq pipeline`, as they report themselves in files; there is no Spark here."""

import asyncio
from collections.abc import Callable

import msgspec

from pyromq.admin import pipeline_runs
from pyromq.admin.failures import NotFound
from pyromq.admin.pipeline_runs import PipelineRun
from pyromq.console.page import Data
from pyromq.console.visit import Visit


async def known(visit: Visit) -> list[PipelineRun]:
    directory = visit.state.settings.pipeline_runs.expanduser()
    return await asyncio.to_thread(pipeline_runs.runs, directory)


async def show(visit: Visit) -> Data:
    """The runs of this cluster; `?all=1` has those of other name servers, too."""
    assert visit.shown is not None
    every, with_all = await known(visit), visit.flag("all")
    here = [run for run in every if with_all or run.is_at(visit.shown.cluster.name_servers)]
    return {
        "runs": [_row(run, visit.now_ms) for run in here],
        "elsewhere": len(every) - len(here),
        "all": with_all,
        "directory": str(visit.state.settings.pipeline_runs),
    }


async def one(visit: Visit) -> Data:
    id = visit.path["id"]
    for run in await known(visit):
        if run.id == id:
            return {"run": _row(run, visit.now_ms), "queries": run.queries}
    raise NotFound(f"there is no run {id}: it is a week old, or its file was deleted")


def _row(run: PipelineRun, now_ms: int) -> Data:
    """A run with the sums of its queries."""
    queries = run.queries.values()
    lags = [query.lag for query in queries if query.lag is not None]
    told = msgspec.structs.asdict(run)
    del told["queries"]
    return told | {
        "state": run.state(now_ms),
        "rows_in": sum(query.rows_in for query in queries),
        "rows_out": sum(query.rows_out for query in queries),
        "batches": sum(query.batches for query in queries),
        "rows_per_s": sum(query.rows_per_s for query in queries),
        "lag": sum(lags) if lags else None,
        "topics": sorted({topic for query in queries for topic in query.topics}),
    }


async def those(visit: Visit, is_wanted: Callable[[PipelineRun], bool]) -> list[Data]:
    """Some of the runs of this cluster."""
    assert visit.shown is not None
    servers = visit.shown.cluster.name_servers
    return [_row(run, visit.now_ms) for run in await known(visit) if run.is_at(servers) and is_wanted(run)]
