"""Stores of brokers on this machine: what each holds, and whether it was found sound."""

import asyncio

from pyromq.admin.local_stores import Summary
from pyromq.console.page import Data
from pyromq.console.visit import Visit


async def show(visit: Visit) -> Data:
    jobs = visit.state.store_jobs
    found = await asyncio.gather(*map(jobs.summary, jobs.directories))
    return {
        "stores": [
            {
                "directory": str(directory),
                "summary": told if isinstance(told, Summary) else None,
                "problem": "" if isinstance(told, Summary) else told.problem,
                "verification": jobs.verifications.get(directory),
            }
            for directory, told in zip(jobs.directories, found, strict=True)
        ]
    }
