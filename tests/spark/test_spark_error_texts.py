"""What Spark says when something of ours is refused on the driver."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

OF_ANOTHER = '{"Orders": {"elsewhere:0": 1}}'


def said(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as problem:
        action()
    return str(problem.value)


def test_our_own_errors_on_the_driver_are_one_line_and_others_keep_their_tracebacks(
    spark: SparkSession, topics: "Topics"
) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"x"])
    wrong, given = topics.options("Orders", startingOffsets=OF_ANOTHER), topics.options("Orders")

    def batch(**options: str) -> DataFrame:
        return spark.read.format("rocketmq").options(**options).load()

    def streamed() -> None:
        stream = spark.readStream.format("rocketmq").options(**wrong).load()
        query = stream.writeStream.format("noop").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    rows = spark.createDataFrame([(None,)], "value string")
    sink = rows.write.format("rocketmq").options(**topics.options(), topic="Out").mode("append")
    for action, told in (
        (
            lambda: batch(**given, tagz="a"),
            "pyromq.errors.ConfigError: tagz=a: expected",
        ),
        (lambda: batch(**wrong).count(), "pyromq.errors.ConfigError: startingOffsets="),
        (streamed, "pyromq.errors.ConfigError: startingOffsets="),
        (sink.save, "pyromq.errors.BadMessage: a row has no value"),
    ):
        text = said(action)
        assert [line[0] for line in text.splitlines() if told in line] == ["["], text
        assert "Traceback" not in text
        assert 'File "' not in text

    @udf("double")
    def divided(number: int) -> float:
        return 1 / number

    text = said(spark.range(1).select(divided("id")).collect)
    assert "Traceback" in text
    assert "in divided" in text
