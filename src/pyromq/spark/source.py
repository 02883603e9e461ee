"""`format("rocketmq")`: the face Spark sees. Options are checked when a frame is made, not when it runs."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pyromq.errors import ConfigError, PyroError
from pyromq.spark.options import WriteOptions, check_names, read_options, write_options
from pyromq.spark.schema import check_schema, default_ddl
from pyromq.spark.settling import settle_in, told_in_a_line
from pyromq.spark.tables import (
    is_creating,
    own_options,
    table_schema,
    with_remembered,
    with_remembered_of_target,
)


class RocketMQSource(DataSource):
    """Readers and writers are imported when they are needed: looking for sources should stay quick."""

    @told_in_a_line()
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        settle_in()
        self._given = own_options(dict(options))
        check_names(self._given)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @told_in_a_line()
    def schema(self) -> StructType | str:
        options = read_options(self._given, streaming=None)
        if is_creating(self.options):
            return table_schema(self._given, options)
        return default_ddl(options)

    @told_in_a_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        from pyromq.spark.batch_reader import BatchReader

        options = read_options(with_remembered(self._given, schema), streaming=False)
        check_schema(schema, options)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyromq.spark.stream_reader import RefusedStreamReader, StreamReader

        try:
            options = read_options(with_remembered(self._given, schema), streaming=True)
            check_schema(schema, options)
        except PyroError as problem:
            return RefusedStreamReader(problem)
        return StreamReader(options, schema)

    @told_in_a_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyromq.spark.writer import BatchWriter

        if overwrite:
            raise ConfigError("mode", "overwrite", 'mode("append"): a topic cannot be overwritten')
        chosen = self._write_options(schema)
        if chosen.mode == "transactional":
            from pyromq.spark.transactional import TransactionalBatchWriter

            return TransactionalBatchWriter(chosen)
        return BatchWriter(chosen)

    @told_in_a_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from pyromq.spark.writer import StreamWriter

        # `overwrite` is the output mode complete: each batch sends its whole result as new messages.
        chosen = self._write_options(schema)
        if chosen.mode == "transactional":
            from pyromq.spark.transactional import TransactionalStreamWriter

            return TransactionalStreamWriter(chosen, self.options.get("checkpointLocation"))
        return StreamWriter(chosen)

    def _write_options(self, schema: StructType) -> WriteOptions:
        from pyromq.spark.encode import check_columns

        options = write_options(with_remembered_of_target(self._given, schema))
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        check_columns(columns, options.topic)
        return options
