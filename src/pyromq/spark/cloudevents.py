"""CloudEvents as columns: `with_event_columns(spark.readStream.format("rocketmq")…load())`.

Only expressions of Spark: nothing is read twice, and rows can be filtered before anything else happens.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, get_json_object, lit, to_timestamp, unbase64, when

_CONTENT_TYPE: Final = "CE_contenttype"
_TEXTS: Final = ("id", "source", "type", "specversion", "subject", "dataschema", "datacontenttype")


def with_event_columns(messages: DataFrame) -> DataFrame:
    """Add `ce_id`, `ce_source`, `ce_type`, …, `ce_time` and `ce_data`: null where a message is not a
    CloudEvent.

    Needs the columns `value` (binary) and `properties`. `ce_data` has the bytes of the data. Extensions are
    `properties['CE_name']` in the binary mode, and fields of the body in the structured one.
    """
    text = col("value").cast("string")
    is_structured = coalesce(
        col("properties")[_CONTENT_TYPE].startswith("application/cloudevents"), lit(False)
    )

    def attribute(name: str) -> Column:
        kept = _CONTENT_TYPE if name == "datacontenttype" else f"CE_{name}"
        return when(is_structured, get_json_object(text, f"$.{name}")).otherwise(
            when(col("properties")["CE_specversion"].isNotNull(), col("properties")[kept])
        )

    encoded, plain = get_json_object(text, "$.data_base64"), get_json_object(text, "$.data")
    data = when(is_structured, coalesce(unbase64(encoded), plain.cast("binary"))).otherwise(
        when(col("properties")["CE_specversion"].isNotNull() & (col("value") != lit(b"\0")), col("value"))
    )
    columns = {f"ce_{name}": attribute(name) for name in _TEXTS}
    columns |= {"ce_time": to_timestamp(attribute("time")), "ce_data": data}
    return messages.withColumns(columns)
