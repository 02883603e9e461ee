"""What happens in an S3 store, told by the proxy before it; and a Spark that gets there by itself."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tests.support.apache_releases import cache_directory

from pyromq.spark.object_stores import hadoop_packages
from pyromq.spark.pipelines.quiet import quiet_session

if TYPE_CHECKING:
    from tests.support.object_store import FaultyStore

_S3: Final = ("s3a://",)


class StoreChanges:
    """As `Changes`, for objects whose names begin with `prefix`: each write counts when it comes and when it
    is done."""

    def __init__(self, store: "FaultyStore", prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self.seen = 0

    def __enter__(self) -> "StoreChanges":
        while self._store.written(0):
            pass  # of the run before
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def next(self, timeout_s: float) -> list[str]:
        found = [path for path in self._store.written(timeout_s) if path.startswith(self._prefix)]
        self.seen += len(found)
        return [path.removeprefix(self._prefix) for path in found]


def home_with_s3(home: Path) -> Path:
    """A Spark home that has Hadoop's way to S3: no start of a pipeline looks for it in Maven Central."""
    ivy = str(cache_directory().parent / "ivy")
    spark = quiet_session("s3", "local[1]", settings=hadoop_packages(_S3) | {"spark.jars.ivy": ivy})
    fetched = spark.sparkContext.getConf().get("spark.jars", "") or ""
    spark.stop()
    usual = Path(os.environ["SPARK_HOME"])
    (home / "jars").mkdir(parents=True)
    for entry in usual.iterdir():
        if entry.name != "jars":
            (home / entry.name).symlink_to(entry)
    for jar in (
        *(usual / "jars").iterdir(),
        *(Path(urlsplit(uri).path) for uri in fetched.split(",") if uri),
    ):
        (home / "jars" / jar.name).symlink_to(jar)
    return home
