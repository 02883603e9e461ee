"""The messages of the service: what the .proto files declare, and known to nobody else in the process."""

import re
from importlib.resources import files

import pytest
from google.protobuf import descriptor_pool

from pyromq.proxy.messages import PACKAGE, POOL, message, rpc_types

SOURCE = files("pyromq.proxy").joinpath("apis", "apache", "rocketmq", "v2")
TEXT = "".join(SOURCE.joinpath(f"{name}.proto").read_text() for name in ("definition", "service"))
CODE = re.sub(r"//[^\n]*", "", TEXT)


def test_the_compiled_messages_are_those_of_the_proto_files() -> None:
    for name, body in re.findall(r"^message (\w+) \{([^\n]*\}$|.*?^\})", CODE, re.M | re.S):
        fields = re.findall(r"(\w+)\s*=\s*(\d+);", re.sub(r"enum \w+ \{.*?\}", "", body, flags=re.S))
        descriptor = POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")
        compiled = {(each.name, str(each.number)) for each in descriptor.fields}
        assert compiled == set(fields), name


def test_the_compiled_service_is_that_of_the_proto_files() -> None:
    assert list(rpc_types()) == re.findall(r"rpc (\w+)\(", CODE)


def test_the_official_client_may_register_the_same_names_in_this_process() -> None:
    assert message("Message").DESCRIPTOR.full_name == "apache.rocketmq.v2.Message"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("apache.rocketmq.v2.Message")
