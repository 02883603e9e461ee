"""Whatever a body holds comes back; whatever arrives is a value or one error."""

import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from tests.support.chance import examples

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import config_tables, fastjson_reader, json_body, pop_records, registration, requests  # noqa: F401
from pyromq.protocol.body import Body, DataVersion, MessageQueue
from pyromq.protocol.registration import RegisterBrokerBody

MEBIBYTE = 1024 * 1024


def every_body() -> list[type[msgspec.Struct]]:
    found: list[type[msgspec.Struct]] = [MessageQueue, DataVersion]
    families: list[type[msgspec.Struct]] = [Body]
    for parent in families:
        families += parent.__subclasses__()
    return found + families[1:]


BODIES = sorted(every_body(), key=lambda body: body.__name__)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [
        "{0:1}",
        ",1:",
        '"',
        "\\",
        '\\"',
        ":null",
        ',"zoneName":null',
        "$ref",
        "null",
        "true",
        "5",
        "",
        "'",
        "//",
    ]
)


def instances(declared: inspect.Type) -> st.SearchStrategy[Any]:
    match declared:
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: instances(field.type) for field in fields})
        case inspect.DictType(key_type=key_type, value_type=value_type):
            # A map of nothing but "$ref" to a text is a reference, in Java as well.
            keys = instances(key_type).filter(lambda key: key != "$ref")
            return st.dictionaries(keys, instances(value_type), max_size=3)
        case inspect.ListType(item_type=item_type):
            return st.lists(instances(item_type), max_size=3)
        case inspect.SetType(item_type=item_type):
            return st.sets(instances(item_type), max_size=3)
        case inspect.UnionType(types=types):
            return st.one_of([instances(choice) for choice in types])
        case inspect.EnumType(cls=enum):
            return st.sampled_from(list(enum))
        case inspect.IntType(ge=least, le=most):
            return st.integers(least, most)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return text
        case inspect.BytesType():
            return st.binary(max_size=8)
        case inspect.NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no values are made of {declared}")


any_body = st.sampled_from(BODIES).flatmap(lambda body: instances(inspect.type_info(body)))


@settings(max_examples=examples(200))
@given(any_body)
def test_a_body_comes_back_from_either_form(body: msgspec.Struct) -> None:
    assert json_body.decode(json_body.encode(body), type(body)) == body
    assert json_body.decode(json_body.encode_strict(body), type(body)) == body


@settings(max_examples=examples(100))
@given(any_body)
def test_the_strict_form_is_standard_json_in_ascii(body: msgspec.Struct) -> None:
    strict = json_body.encode_strict(body)
    assert strict.isascii()
    assert isinstance(json.loads(strict), dict)


@settings(max_examples=examples(100))
@given(any_body)
def test_members_are_in_order_and_never_null(body: msgspec.Struct) -> None:
    written: dict[str, Any] = json.loads(json_body.encode_strict(body))
    assert list(written) == sorted(written)
    assert None not in written.values()


@settings(max_examples=examples(100))
@given(any_body)
def test_spaces_between_tokens_change_nothing(body: msgspec.Struct) -> None:
    spaced = json.dumps(json.loads(json_body.encode_strict(body)), indent=1, separators=(" , ", " : "))
    assert json_body.decode(spaced.encode(), type(body)) == body


def is_read_or_refused(data: bytes, type_: Any) -> None:
    try:
        value = json_body.decode(data, type_)
    except RemoteProtocolError:
        return
    # Whatever was read can be written again.
    json_body.encode(value)
    json_body.encode_strict(value)


PUNCTUATION = list("{}[]:,\"'\\0")
WORDS = ["null", "NaN", "true", "-", "1e9", "1e999", "9" * 30, '"queueId":', "'a':", "a:", "{{", "}:"]
REFERENCES = ['{"$ref":"$"}', '{"$ref":"$.', '{"$ref":"..']
CONTROLS = ["/*", "*/", "//", "\\u", "\\ud800", "\\x4", "\ufeff", "\0", "\1"]
fragments = st.sampled_from([*PUNCTUATION, *WORDS, *REFERENCES, *CONTROLS]).map(str.encode) | st.binary(
    max_size=4
)


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 5)))
        data = data[:start] + draw(fragments) + data[end:]
    return data


@settings(max_examples=examples(200))
@given(st.data(), any_body, st.booleans())
def test_a_spoilt_document_is_read_or_refused(
    data: st.DataObject, body: msgspec.Struct, strict: bool
) -> None:
    written = json_body.encode_strict(body) if strict else json_body.encode(body)
    is_read_or_refused(data.draw(mutated(written)), type(body))


@settings(max_examples=examples(200))
@given(st.lists(fragments, max_size=20).map(b"".join), st.sampled_from([*BODIES, dict[str, Any], list[Any]]))
def test_a_heap_of_fragments_is_read_or_refused(data: bytes, type_: Any) -> None:
    is_read_or_refused(data, type_)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(names, children, max_size=4),
    max_leaves=12,
).filter(lambda value: not isinstance(value, dict) or "$ref" not in value)


@st.composite
def written_oddly(draw: st.DrawFn, value: Any) -> str:
    """A plain value in one of the many ways in which fastjson accepts it."""
    blank = st.sampled_from(["", "", " ", "\n\t", "/**/", "/* , */", "//x\n"])

    def odd(value: Any) -> str:
        if isinstance(value, dict):
            members = [
                f"{key(name)}{draw(blank)}:{draw(blank)}{odd(member)}" for name, member in value.items()
            ]
            return "{" + between(members) + "}"
        if isinstance(value, list):
            return "[" + between([odd(item) for item in value]) + "]"
        if isinstance(value, str):
            return quoted(value)
        return json.dumps(value)

    def between(parts: list[str]) -> str:
        comma = st.sampled_from([",", ",", ",,", " , ", ",/**/,"])
        joined = draw(blank) + "".join(part + draw(comma) for part in parts[:-1]) + "".join(parts[-1:])
        return joined + draw(blank | comma if parts else blank)

    def key(name: str) -> str:
        if name.isascii() and name.isidentifier() and draw(st.booleans()):
            return name
        return quoted(name)

    def quoted(string: str) -> str:
        if draw(st.booleans()):
            return json.dumps(string, ensure_ascii=draw(st.booleans()))
        return "'" + string.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return draw(blank) + odd(value) + draw(blank)


@settings(max_examples=examples(200))
@given(st.data(), plain_values)
def test_an_odd_document_means_what_the_plain_one_means(data: st.DataObject, value: Any) -> None:
    document = data.draw(written_oddly(value))
    assert fastjson_reader.read(document.encode()) == value


@settings(max_examples=examples(100))
@given(instances(inspect.type_info(RegisterBrokerBody)), st.sampled_from([36, 37, 397, 413, 479]))
def test_a_plain_registration_comes_back(body: RegisterBrokerBody, version: int) -> None:
    data = registration.encode_plain(body, version)
    back = registration.decode(data, compressed=False, version=version, max_bytes=MEBIBYTE)
    topics, back_topics = body.topic_config_serialize_wrapper, back.topic_config_serialize_wrapper
    assert back == body or version < 37
    assert back_topics.topic_config_table == topics.topic_config_table


@settings(max_examples=examples(100))
@given(st.data(), instances(inspect.type_info(RegisterBrokerBody)))
def test_a_spoilt_packed_registration_is_read_or_refused(
    data: st.DataObject, body: RegisterBrokerBody
) -> None:
    for config in body.topic_config_serialize_wrapper.topic_config_table.values():
        config.topic_name = config.topic_name.replace(" ", "_")
    packed = registration.encode_compressed(body, 479)
    spoilt = data.draw(mutated(zlib.decompress(packed)))
    for candidate in (zlib.compress(spoilt), data.draw(mutated(packed))):
        try:
            registration.decode(candidate, compressed=True, version=479, max_bytes=MEBIBYTE)
        except RemoteProtocolError:
            continue


@settings(max_examples=examples(100))
@given(instances(inspect.type_info(RegisterBrokerBody)))
def test_a_packed_registration_keeps_names_and_queues(body: RegisterBrokerBody) -> None:
    topics = body.topic_config_serialize_wrapper
    for number, config in enumerate(topics.topic_config_table.values()):
        config.topic_name = f"{number}{config.topic_name.replace(' ', '_')}"
    data = registration.encode_compressed(body, 479)
    back = registration.decode(data, compressed=True, version=479, max_bytes=MEBIBYTE)
    read = back.topic_config_serialize_wrapper
    assert read.data_version == topics.data_version
    assert back.filter_server_list == body.filter_server_list
    assert [
        (config.topic_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.attributes)
        for config in read.topic_config_table.values()
    ] == [
        (config.topic_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.attributes)
        for config in topics.topic_config_table.values()
    ]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_every_body_refuses_what_is_no_object(body: type[msgspec.Struct]) -> None:
    for data in (b"", b"[]", b"5", b"null", b'"x"', b"{"):
        with pytest.raises(RemoteProtocolError, match=body.__name__):
            json_body.decode(data, body)
