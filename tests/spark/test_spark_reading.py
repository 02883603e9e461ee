"""What a task does with the messages of its spans, without Spark around it."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from pyromq.errors import RemoteProtocolError
from pyromq.spark.batch_reader import BatchReader
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import read_options

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


@pytest.mark.parametrize(
    ("form", "ddl", "good", "bad"),
    [
        ("json", "value: struct<id: bigint>", b'{"id": 1}', b'{"id": "x"}'),
        ("string", "value: string, offset: bigint", b"text", b"\xff"),
    ],
)
def test_a_body_that_cannot_be_read_is_named_with_its_place(
    form: str, ddl: str, good: bytes, bad: bytes, topics: "Topics"
) -> None:
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, [good] * 5)
    topics.fill("Orders", 1, [good] * 7 + [bad] + [good] * 5)
    given = topics.options("Orders", valueFormat=form, valueMode="failfast")
    schema = parse_type(f"struct<{ddl}>")
    assert isinstance(schema, StructType)
    reader = BatchReader(read_options(given, streaming=False), schema)
    first, second = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(first)) == 5
    with pytest.raises(RemoteProtocolError, match=r"^Orders@broker-a:1 offset 7: "):
        list(reader.read(second))
