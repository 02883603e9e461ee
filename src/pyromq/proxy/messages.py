"""The messages of apache.rocketmq.v2 as our own classes.

They are made from the compiled .proto files in `apis`, in a private pool: the official Python client
registers the same names in protobuf's common pool, and a second registration there would fail. After a change
of the .proto files, in the directory `apis`:

    protoc --include_imports --descriptor_set_out=messages.binpb apache/rocketmq/v2/*.proto
"""

from importlib.resources import files
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"


def _load() -> DescriptorPool:
    pool = DescriptorPool()
    compiled = files("pyromq.proxy").joinpath("apis", "messages.binpb").read_bytes()
    for each in FileDescriptorSet.FromString(compiled).file:
        pool.Add(each)
    return pool


POOL = _load()


def message(name: str) -> Any:
    """The class of a message."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def enum_values(name: str) -> dict[str, int]:
    """The values of an enum by their names."""
    return {each.name: each.number for each in POOL.FindEnumTypeByName(f"{PACKAGE}.{name}").values}


class Rpc(NamedTuple):
    request_type: Any
    answer_type: Any
    has_request_stream: bool
    has_answer_stream: bool


def rpc_types() -> dict[str, Rpc]:
    """Each rpc of the service, by its name."""
    return {
        each.name: Rpc(
            GetMessageClass(each.input_type),
            GetMessageClass(each.output_type),
            each.client_streaming,
            each.server_streaming,
        )
        for each in POOL.FindServiceByName(SERVICE).methods
    }
