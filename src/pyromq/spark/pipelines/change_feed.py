"""Changes as messages in Debezium's form, without schemas around them: what `pyromq pipeline changes` reads.

Changes are rows of a frame: `op` (c, u, d, r), and the structures `before` and `after`, one of which may be
null. Those of a Delta table are in its change data feed.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema

from pyromq.errors import ConfigError
from pyromq.spark.object_stores import delta_options
from pyromq.version import version

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WHOLE = {"ignoreNullFields": "false"}
_OF_THE_FEED = {"_change_type": "string", "_commit_version": "long", "_commit_timestamp": "timestamp"}


def to_debezium(
    changes: "DataFrame", keys: Sequence[str], *, source: Mapping[str, str] | None = None
) -> "DataFrame":
    """The columns `key` and `value` of a message for each change; `keys` are fields of `before` and `after`.

    `source` says where the changes come from, like {"db": "shop", "table": "orders"}. A column `at timestamp`
    is the time of the change. Rows of one key keep their order if they are in one partition.
    """
    names = changes.columns
    if "op" not in names or not {"before", "after"} & set(names):
        raise ConfigError("columns", ", ".join(names), "op, and before or after")
    row = changes.schema["after" if "after" in names else "before"].dataType
    sides = {name: fn.col(name) if name in names else fn.lit(None).cast(row) for name in ("before", "after")}
    now = fn.unix_millis(fn.col("at") if "at" in names else fn.current_timestamp())
    origin = {"version": version(), "connector": "pyromq", "name": "pyromq"} | dict(source or {})
    told = [fn.lit(value).alias(name) for name, value in origin.items()]
    envelope = fn.struct(
        *(side.alias(name) for name, side in sides.items()),
        fn.struct(*told, now.alias("ts_ms")).alias("source"),
        fn.col("op"),
        now.alias("ts_ms"),
    )
    key = fn.struct(*(_either(sides, name).alias(name) for name in keys))
    return changes.select(
        fn.to_json(key, _WHOLE).alias("key"),
        fn.to_json(envelope, _WHOLE).cast("binary").alias("value"),
    )


def _either(sides: Mapping[str, "Column"], field: str) -> "Column":
    return fn.coalesce(sides["after"].getField(field), sides["before"].getField(field))


def delta_changes(
    spark: "SparkSession", place: str, keys: Sequence[str], since: int = 0, until: int | None = None
) -> "DataFrame":
    """The changes of a Delta table from version `since` to `until`, for `to_debezium`, with their `version`.

    The table must have `delta.enableChangeDataFeed`. Changes of one key are in one partition, oldest first.
    """
    try:
        from deltalake import DeltaTable

        from pyromq.spark.pipelines.delta_lake import DeltaLake
    except ImportError as problem:
        raise ConfigError("place", place, f"pip install 'pyromq[lakehouse]' ({problem})") from None
    import pyarrow as pa

    columns = DeltaLake(place).schema()
    row = fn.struct(*[fn.col(f"`{name}`") for name in columns.names])
    for name, type_ in _OF_THE_FEED.items():
        columns.add(name, type_)
    schema = to_arrow_schema(columns, timezone="UTC")
    table = DeltaTable(place, storage_options=delta_options(place))
    feed = pa.table(table.load_cdf(since, until, allow_out_of_range=True))

    def side(*kinds: str) -> "Column":
        return fn.first(fn.when(fn.col("_change_type").isin(*kinds), row), ignorenulls=True)

    of_a_commit = spark.createDataFrame(feed.select(schema.names).cast(schema)).groupBy(
        fn.col("_commit_version").alias("version"), *keys
    )
    changes = of_a_commit.agg(
        side("delete", "update_preimage").alias("before"),
        side("insert", "update_postimage").alias("after"),
        fn.max("_commit_timestamp").alias("at"),
    )
    op = fn.when(fn.isnull("before"), "c").when(fn.isnull("after"), "d").otherwise("u").alias("op")
    by_key = [fn.coalesce(f"after.`{key}`", f"before.`{key}`") for key in keys]
    ordered = changes.repartition(*by_key).sortWithinPartitions("version")
    return ordered.select(op, "before", "after", "at", "version")
