"""Pipelines with everything in S3: tables, checkpoints and journals, while one request in a hundred fails.

    python -m tools.object_stores

Spark goes there by its own means, which come from Maven Central. Exit status 3 says that these could not be
had; everything else that is not 0 is our own fault.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.apache_releases import UNAVAILABLE, cache_directory, say
from tests.support.object_store import SECRET_KEY, FaultyStore, faulty_store, lead_to

from pyromq import Message, Producer
from pyromq.spark.object_stores import hadoop_packages
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.changes import apply_changes
from pyromq.spark.pipelines.compact import compact
from pyromq.spark.pipelines.lake import DELTA, FORMATS, ICEBERG, PLAIN, read_lake, table_at
from pyromq.spark.pipelines.quiet import quiet_session
from pyromq.spark.pipelines.replay import replay
from pyromq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES: Final = 200
SHARE_OF_FAULTS: Final = 0.01


def main() -> int:
    patch = pytest.MonkeyPatch()
    with faulty_store() as store, tempfile.TemporaryDirectory(prefix="pyromq-object-stores-") as scratch:
        lead_to(store.url(), patch)
        packages = hadoop_packages(["s3://"]) | {"spark.jars.ivy": str(cache_directory().parent / "ivy")}
        try:
            spark = quiet_session("object-stores", "local[2]", settings=packages)
        except Exception as problem:
            say(f"NOT RUN: could not fetch {packages} from Maven Central: {problem}")
            return UNAVAILABLE
        settings = json.dumps(spark.sparkContext.getConf().getAll())
        assert SECRET_KEY not in settings, "the key is in a setting of Spark"
        store.fail_sometimes(seed=int(os.environ.get("SEED", "7")), share=SHARE_OF_FAULTS)
        try:
            _run(spark, store, Path(scratch))
        finally:
            spark.stop()
    return 0


def _run(spark: "SparkSession", store: FaultyStore, scratch: Path) -> None:
    bucket = store.new_bucket()
    with cluster(scratch / "store") as running:
        at = {"namesrv": running.namesrv}
        for half in range(2):
            with Producer("object-stores", namesrv=running.namesrv) as producer:
                for number in range(half * MESSAGES, (half + 1) * MESSAGES):
                    producer.send(Message("Orders", b"%d" % number))
                    row = {"id": number % 50, "note": f"{number}"}
                    event = json.dumps({"op": "u", "after": row}).encode()
                    key = json.dumps({"id": number % 50})
                    producer.send(Message("Rows", event, keys=key))
            for scheme, form in zip(("s3a", "s3", "s3a"), FORMATS, strict=True):
                archive(spark, at | {"subscribe": "Orders"}, f"{scheme}://{bucket}/{form}", form=form)
            for form in (DELTA, ICEBERG):
                changed = at | {"subscribe": "Rows"}
                place = f"s3://{bucket}/rows-{form}"
                apply_changes(spark, changed, place, form=form, keys=["id"], schema="id bigint, note string")
        everything = list(range(2 * MESSAGES))
        for scheme, form in zip(("s3a", "s3", "s3a"), FORMATS, strict=True):
            lake = f"{scheme}://{bucket}/{form}"
            assert sorted(int(row.value) for row in read_lake(spark, lake).collect()) == everything, form
            if form != PLAIN:
                say(f"{form}: {compact(spark, lake)}")
                assert sorted(int(row.value) for row in read_lake(spark, lake).collect()) == everything, form
        sent = replay(
            spark, f"s3a://{bucket}/{PLAIN}", at | {"topic": "Copies"}, checkpoint=f"s3a://{bucket}/r"
        )
        assert sent.rows_out == len(everything)
        last = {number % 50: str(number) for number in everything}
        for form in (DELTA, ICEBERG):
            table = table_at(f"s3://{bucket}/rows-{form}", form)
            rows = table.read(spark, table.schema()).collect()
            assert {row.id: row.note for row in rows} == last, form
            assert len(rows) == len(last), form
        _write_once(spark, at, bucket)
    say(f"S3: archives, changes, a replay and a transactional sink agree; {store.failed()} requests failed")


def _write_once(spark: "SparkSession", at: dict[str, str], bucket: str) -> None:
    """A transactional sink whose journal is in its checkpoint."""
    source = spark.readStream.format("rocketmq").options(**at, subscribe="Orders", startingOffsets="earliest")
    writer = (
        source.option("maxOffsetsPerTrigger", "150").load().select("value").writeStream.format("rocketmq")
    )
    options = at | {
        "topic": "Totals",
        "mode": "transactional",
        "checkpointLocation": f"s3a://{bucket}/checkpoint",
    }
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()
    totals = spark.read.format("rocketmq").options(**at, subscribe="Totals").load().collect()
    assert sorted(int(row.value) for row in totals) == list(range(2 * MESSAGES))


if __name__ == "__main__":
    sys.exit(main())
