"""Topics into a lake, by topic and day, each message once however often the job is run or killed."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyromq.spark.options import read_options
from pyromq.spark.pipelines import lake as lakes
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.tallies import Show, Tally, unseen, watch
from pyromq.spark.schema import default_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_BATCH = 1_000_000
"""The size of a batch, unless the options set it."""

_SIZES = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxbytespertrigger")


def archive(
    spark: "SparkSession",
    options: Mapping[str, str],
    lake: str,
    *,
    form: str | None = None,
    catalog: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    show: Show = unseen,
) -> Tally:
    """Copy new messages once, or keep running with a `trigger` like {"processingTime": "1 hour"}.

    `form` is one of `lake.FORMATS`; without it, the format that the lake has, or plain Parquet. If values are
    decoded, the lake has the column `body` as well: a body may have more than its value. A new Iceberg table
    is in the `catalog` if that names one, and the table, like `prod.shop.orders`.
    """
    form = lakes.checked_form(spark, lake, form or (lakes.ICEBERG if catalog else None))
    if catalog is not None:
        lakes.enter_catalog(lake, form, catalog)
    given = {"startingOffsets": "earliest"} | dict(options)
    if not any(name.lower() in _SIZES for name in given):
        given["maxOffsetsPerTrigger"] = str(ROWS_PER_BATCH)
    source, parsed = spark.readStream.format("rocketmq").options(**given), read_options(given, streaming=True)
    if parsed.value_format != "binary":
        source = source.schema(f"{default_ddl(parsed)}, body binary")
    stream = source.load()
    if (reach := lakes.archived(spark, lake)) is not None:
        grown(lakes.lake_schema(spark, lake, reach), stream.schema)  # says so if their types contradict
    writer = stream.writeStream.foreachBatch(partial(lakes.keep_batch, lake=lake, form=form))
    writer = writer.option("checkpointLocation", lakes.checkpoint_of(lake))
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    return watch("archive", query, show)
