"""Every body against a document that fastjson 1.2.83 wrote for Apache's class with every member filled in."""

import json
import re
from typing import Any

import msgspec
from tests.support.many_cases import for_each
from tests.support.places import GOLDEN

from pyromq.protocol import config_tables, json_body, pop_records, registration, requests  # noqa: F401
from pyromq.protocol.body import Body, DataVersion, MessageQueue

WRITTEN_BY_JAVA = GOLDEN / "bodies"

# Apache computes these from other members when it writes, and passes over them when it reads.
DERIVED = re.compile(rb',"(?:dead|reviveTime|groupTopicMap|\w+Str)":(?:"[^"]*"|\{\}|\w+)')


def every_body() -> dict[str, type[msgspec.Struct]]:
    found: list[type[msgspec.Struct]] = [Body, DataVersion, MessageQueue]
    for parent in found:
        found += (each for each in parent.__subclasses__() if each.__module__.startswith("pyromq."))
    return {each.__name__: each for each in found[1:]}


# Apache's `Connection` is our `ClientConnection`: the name belongs to the connections of `remoting`.
BODIES = every_body()
BODIES["Connection"] = BODIES.pop("ClientConnection")
GOLDEN_NAMES = sorted(path.stem for path in WRITTEN_BY_JAVA.glob("*.json"))


@for_each("name", GOLDEN_NAMES, named=str)
def test_a_body_is_written_as_java_writes_it(name: str) -> None:
    golden = (WRITTEN_BY_JAVA / f"{name}.json").read_bytes()
    assert json_body.encode(json_body.decode(golden, BODIES[name])) == DERIVED.sub(b"", golden)


@for_each("name", GOLDEN_NAMES, named=str)
def test_the_strict_form_is_json_and_says_the_same(name: str) -> None:
    value = json_body.decode((WRITTEN_BY_JAVA / f"{name}.json").read_bytes(), BODIES[name])
    strict = json_body.encode_strict(value)
    json.loads(strict)
    assert strict.isascii()
    assert json_body.decode(strict, BODIES[name]) == value


def test_only_parts_of_other_bodies_have_no_document_of_their_own() -> None:
    assert set(BODIES) - set(GOLDEN_NAMES) == {
        "ConsumerFilterData",
        "FilterDataMapByTopic",
        "Metric",
        "OrderInfo",
        # Ours alone, between a master and its replicas.
        "AccessTable",
        "DeletedTopic",
        "ReplicatedTables",
        # Ours alone, for the console.
        "Figures",
        "RouteDigests",
        "StoreFigures",
        # Ours alone, for operators.
        "Erasure",
        "ErasureList",
        "LiteTopicList",
        # Of RocketMQ 5.5, from which none were recorded.
        "ClientGroup",
        "GetBrokerLiteInfoResponseBody",
        "GetLiteClientInfoResponseBody",
        "GetLiteGroupInfoResponseBody",
        "GetLiteTopicInfoResponseBody",
        "GetParentTopicInfoResponseBody",
        "LiteLagInfo",
        "LiteOffsetWrapper",
        "LiteSubscriptionCtlRequestBody",
        "LiteSubscriptionDTO",
        "LiteTopicOffset",
        "OffsetOption",
    }


@for_each("line", (WRITTEN_BY_JAVA / "defaults.txt").read_text().splitlines(), named=str)
def test_defaults_are_those_of_java(line: str) -> None:
    name, document = line.split(" ", 1)
    java: dict[str, Any] = json.loads(document)
    for field in msgspec.structs.fields(BODIES[name]):
        if field.required:
            assert java.get(field.encode_name) in (None, 0), field.name
            continue
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        ours = msgspec.to_builtins(default)
        if field.encode_name in java:
            written = json.loads(json_body.encode(ours))
            assert without_nulls(written) == java[field.encode_name], field.name
        else:
            # Where Java has null, we have None, or a collection to which one can add.
            assert not ours, field.name


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return value


@for_each("name", sorted(BODIES), named=str)
def test_fields_are_declared_in_the_order_of_the_wire(name: str) -> None:
    """So that the encoder in C can write them; a few have a reason not to."""
    names = [field.encode_name for field in msgspec.structs.fields(BODIES[name])]
    extends_another = {"BatchAckMsg", "LmqConsumerOffsetTable", "TopicConfigAndQueueMapping"}
    assert (names == sorted(names)) == (name not in extends_another | {"MessageQueue"})
