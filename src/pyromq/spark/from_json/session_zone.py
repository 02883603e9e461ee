"""The time zone of the Spark session that a task belongs to."""

import os
from pathlib import Path

from pyspark import TaskContext

from pyromq.spark.from_json.times import Zone, zone_of
from pyromq.spark.from_json.unfit import Unfit

_SETTING = "spark.sql.session.timeZone"
_LOCALTIME = Path("/etc/localtime")


def session_zone() -> Zone:
    """The session's zone; without a setting, the zone of the machine."""
    task = TaskContext.get()
    setting = task.getLocalProperty(_SETTING) if task is not None else None
    for name in (setting, os.environ.get("TZ"), _linked_zone()):
        if name:
            try:
                return zone_of(name)
            except Unfit:
                continue
    return 0


def _linked_zone() -> str:
    return str(_LOCALTIME.resolve()).partition("/zoneinfo/")[2]
