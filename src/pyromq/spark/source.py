"""`format("rocketmq")`: the face Spark sees. Options are checked when a frame is made, not when it runs."""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyromq.errors import PyroError
from pyromq.spark.options import check_names, read_options
from pyromq.spark.schema import check_schema, default_ddl


class RocketMQSource(DataSource):
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        check_names(dict(options))

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return default_ddl(read_options(dict(self.options), streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyromq.spark.batch_reader import BatchReader

        options = read_options(dict(self.options), streaming=False)
        check_schema(schema, options)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyromq.spark.stream_reader import RefusedStreamReader, StreamReader

        try:
            options = read_options(dict(self.options), streaming=True)
            check_schema(schema, options)
        except PyroError as problem:
            return RefusedStreamReader(problem)
        return StreamReader(options, schema)
