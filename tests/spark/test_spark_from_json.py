"""`valueFormat=json` beside Spark's own `from_json`: the same rows of the same documents, in any zone."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.support.json_documents import ODD_DDL, USUAL_DDL, odd_document, usual_document

from pyromq.spark.ddl import parse_type
from pyromq.spark.from_json.documents import Documents
from pyromq.spark.from_json.times import zone_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topics

COUNT = 1500


def struct_of(ddl: str) -> pa.StructType:
    type_ = parse_type(f"struct<v: struct<{ddl}>>")
    assert isinstance(type_, StructType)
    return to_arrow_schema(type_, timezone="UTC").field("v").type


def plain(array: pa.Array) -> list[Any]:
    """As Python's values, but with numbers for times: those of Spark go further than those of Python."""
    types, is_there = pa.types, array.is_valid().to_pylist()
    if types.is_struct(array.type):
        names = [field.name for field in array.type]
        columns = [plain(array.field(index)) for index in range(len(names))]
        values: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    elif types.is_map(array.type) or types.is_list(array.type):
        edges = array.offsets.to_pylist()
        items = plain(array.values)
        values = [items[low:high] for low, high in pairwise(edges)]
    elif types.is_timestamp(array.type):
        values = array.cast(pa.int64()).to_pylist()
    elif types.is_date(array.type):
        values = array.cast(pa.int32()).to_pylist()
    elif types.is_floating(array.type):
        values = [repr(number) for number in array.to_pylist()]
    else:
        values = array.to_pylist()
    return [value if there else None for value, there in zip(values, is_there, strict=True)]


@pytest.fixture
def zoned(spark: "SparkSession") -> Iterator[Callable[[str], "SparkSession"]]:
    def in_zone(zone: str) -> "SparkSession":
        spark.conf.set("spark.sql.session.timeZone", zone)
        return spark

    yield in_zone
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def from_json(spark: "SparkSession", documents: list[bytes], ddl: str) -> list[Any]:
    table = pa.table({"number": range(len(documents)), "body": pa.array(documents, pa.binary())})
    rows = spark.createDataFrame(table).select(
        "number", F.from_json(F.col("body").cast("string"), ddl).alias("row")
    )
    return plain(rows.toArrow().sort_by("number").column("row").combine_chunks())


def differences(ours: list[Any], theirs: list[Any], documents: list[bytes]) -> list[Any]:
    triples = zip(documents, theirs, ours, strict=True)
    return [(document, wanted, got) for document, wanted, got in triples if wanted != got]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/Los_Angeles", "+05:30"])
@pytest.mark.parametrize(("make", "ddl"), [(odd_document, ODD_DDL), (usual_document, USUAL_DDL)])
def test_documents_are_read_exactly_as_by_from_json(
    zoned: Callable[[str], "SparkSession"], zone: str, make: Callable[[random.Random], bytes], ddl: str
) -> None:
    source = random.Random(f"{zone} {ddl}")
    documents = [make(source) for _ in range(COUNT)]
    ours = Documents(struct_of(ddl), zone_of(zone), fails=False).read(pa.array(documents, pa.binary()))
    assert differences(plain(ours), from_json(zoned(zone), documents, ddl), documents) == []


def test_times_without_a_zone_are_in_the_zone_of_the_session(
    zoned: Callable[[str], "SparkSession"], topics: "Topics"
) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b'{"at": "2026-01-02 21:00:00"}', b'{"at": "2026-1-2"}'])
    spark, ddl = zoned("Asia/Tokyo"), "at timestamp"
    bodies = spark.read.format("rocketmq").options(**topics.options("Orders")).load().orderBy("offset")
    options = topics.options("Orders", valueFormat="json", valueSchema=ddl)
    documents = spark.read.format("rocketmq").options(**options).load().orderBy("offset")
    ours = [row.text for row in documents.selectExpr("cast(value.at as string) as text").collect()]
    theirs = bodies.selectExpr(
        f"cast(from_json(cast(value as string), '{ddl}').at as string) as text"
    ).collect()
    assert ours == [row.text for row in theirs] == ["2026-01-02 21:00:00", "2026-01-02 00:00:00"]


def test_a_field_for_corrupt_records_gets_the_text_of_what_does_not_fit(
    zoned: Callable[[str], "SparkSession"],
) -> None:
    ddl = "id bigint, _corrupt_record string"
    documents = [b'{"id":1}', b'{"id":"x"}', b"?", b"", b'{"id":2,"_corrupt_record":"y"}', b'{"id": 3} rest']
    ours = Documents(struct_of(ddl), 0, fails=False).read(pa.array(documents, pa.binary()))
    assert plain(ours) == from_json(zoned("UTC"), documents, ddl)


def test_every_zone_of_java_is_known(spark: "SparkSession") -> None:
    assert spark._jvm is not None
    names = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())
    names = {name for name in names if not name.startswith("SystemV/")}
    moments = [
        f"{year}-0{month}-10 12:00:00 {name}" for name in names for year, month in ((1999, 1), (2019, 7))
    ]
    documents = [f'{{"at": "{moment}"}}'.encode() for moment in moments]
    ours = Documents(struct_of("at timestamp"), 0, fails=False).read(pa.array(documents, pa.binary()))
    assert differences(plain(ours), from_json(spark, documents, "at timestamp"), documents) == []
