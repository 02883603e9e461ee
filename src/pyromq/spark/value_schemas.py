"""Avro and Protobuf schemas of values: the type that Spark gives them, and the subject of a registry."""

from pyromq.errors import ConfigError
from pyromq.spark.avro import avro_to_ddl
from pyromq.spark.options import ReadOptions
from pyromq.spark.protobuf_schema import protobuf_to_ddl
from pyromq.spark.registry import Texts


def schema_ddl(options: ReadOptions, text: str, references: Texts = ()) -> str:
    """The type of the values of an Avro or Protobuf schema."""
    if options.value_format == "avro":
        return avro_to_ddl(text, references)
    return protobuf_to_ddl(text, references, options.value_message)


def subject_of(options: ReadOptions) -> str:
    if options.value_subject is not None:
        return options.value_subject
    topics = options.selection.topics
    if len(topics) != 1:
        raise ConfigError("valueSubject", None, "a subject: there is a default for a single topic only")
    return f"{topics[0]}-value"
