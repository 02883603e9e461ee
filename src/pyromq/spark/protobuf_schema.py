"""Message types from the text of .proto files, and the types of Spark's columns for them.

Google's own compiler (`grpcio-tools`) reads the text, in its own process that says what is wrong. Each
schema has its own pool of descriptors: two versions of a type never meet. Types are those of Spark's
`from_protobuf` with its option `upcast.unsigned.ints`: no number changes.
"""

import base64
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.registry import Texts

MAIN: Final = "pyromq-main.proto"
TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"

_DDL: Final = {
    1: "double",
    2: "float",
    3: "bigint",  # int64
    4: "decimal(20, 0)",  # uint64
    5: "int",  # int32
    6: "decimal(20, 0)",  # fixed64
    7: "bigint",  # fixed32
    8: "boolean",
    9: "string",
    12: "binary",
    13: "bigint",  # uint32
    14: "string",  # enum
    15: "int",  # sfixed32
    16: "bigint",  # sfixed64
    17: "int",  # sint32
    18: "bigint",  # sint64
}
"""By the numbers that Protobuf has for its types."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TIMES: Final = {TIMESTAMP: "timestamp", DURATION: "interval day to second"}


@cache
def schema_file(text: str, references: Texts = ()) -> Any:
    """The descriptor of a file; ConfigError says why there is none."""
    if find_spec("grpc_tools") is None:
        raise ConfigError("valueFormat", "protobuf", "pip install 'pyromq[protobuf]'")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(_compiled(text, references)).file:
        pool.Add(file)
    return pool.FindFileByName(MAIN)


def _compiled(text: str, references: Texts) -> bytes:
    import subprocess  # most readers need neither
    import tempfile

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory(prefix="pyromq-proto-") as scratch:
        ready = FileDescriptorSet()
        for name, content in (*references, (MAIN, text)):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise RemoteProtocolError(f"{name!r} is not the name of a .proto file")
            if _BASE64.fullmatch(content):
                # Confluent's Python client registers a descriptor, and some registries give it back.
                ready.file.append(_descriptor(content))
                ready.file[-1].name = name
                continue
            path = Path(scratch, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        made, given = Path(scratch, "pyromq-made.binpb"), Path(scratch, "pyromq-given.binpb")
        given.write_bytes(ready.SerializeToString())
        done = subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", "--include_imports"),
                *(f"--proto_path={scratch}", f"--descriptor_set_in={given}"),
                *(f"--descriptor_set_out={made}", MAIN),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            what = done.stderr.strip().replace(f"{scratch}/", "").replace(f"{MAIN}:", "")
            raise ConfigError("valueSchema", text, f"a Protobuf schema ({what})")
        return made.read_bytes()


def _descriptor(content: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(content))
    except (ValueError, DecodeError) as problem:
        raise ConfigError("valueSchema", content, f"the text of a .proto file ({problem})") from None


def message_named(file: Any, name: str | None) -> Any:
    """A message type of a file, by its name with or without the package; the first one without a name."""
    known = [message for outer in _inside(file) for message in _with_nested(outer)]
    for message in known:
        if is_called(message, name):
            return message
    names = ", ".join(message.full_name for message in known)
    raise ConfigError(
        "valueMessage", name, f"one of the messages {names}" if names else "a schema with messages"
    )


def is_called(message: Any, name: str | None) -> bool:
    return name in (None, message.full_name, message.full_name.removeprefix(f"{message.file.package}."))


def _with_nested(message: Any) -> list[Any]:
    return [message, *(other for each in _inside(message) for other in _with_nested(each))]


def _inside(outer: Any) -> list[Any]:
    """The message types of a file or a message, in their order.

    Entries of maps are messages, too, but compilers make them, and Confluent's Java client does not count
    them.
    """
    if hasattr(outer, "nested_types"):
        return [each for each in outer.nested_types if not is_map_entry(each)]
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    text = FileDescriptorProto()
    outer.CopyToProto(text)
    return [outer.message_types_by_name[each.name] for each in text.message_type]


def is_map_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def message_at(file: Any, path: Sequence[int]) -> Any:
    """A message type by its place: its number in the file, then that in the message that it is nested in."""
    found = file
    for number in path:
        inside = _inside(found)
        if not 0 <= number < len(inside):
            raise RemoteProtocolError(f"the schema has no message type {list(path)}")
        found = inside[number]
    return found


def path_of(message: Any) -> tuple[int, ...]:
    outer = message.containing_type
    before = () if outer is None else path_of(outer)
    inside = _inside(message.file if outer is None else outer)
    return (*before, [each.full_name for each in inside].index(message.full_name))


def protobuf_to_ddl(text: str, references: Texts = (), name: str | None = None) -> str:
    """The type Spark gives to messages of a type."""
    message = message_named(schema_file(text, references), name)
    ddl = _message_ddl(message, (), text)
    if ddl is None:
        raise ConfigError("valueMessage", message.full_name, "a message with fields")
    return ddl


def _message_ddl(message: Any, around: tuple[str, ...], text: str) -> str | None:
    """None if it has no fields: there is no such column, so it is omitted."""
    if message.full_name in _TIMES:
        return _TIMES[message.full_name]
    if message.full_name in around:
        raise ConfigError(
            "valueSchema", text, f"no {message.full_name} inside itself, which columns cannot have"
        )
    types = {field.name: _field_ddl(field, (*around, message.full_name), text) for field in message.fields}
    fields = [f"`{name}`: {type_}" for name, type_ in types.items() if type_ is not None]
    return f"struct<{', '.join(fields)}>" if fields else None


def _field_ddl(field: Any, around: tuple[str, ...], text: str) -> str | None:
    message = field.message_type
    if message is None:
        one: str | None = _DDL[field.type]
    elif is_map_entry(message):
        key, value = (_field_ddl(message.fields_by_name[name], around, text) for name in ("key", "value"))
        return None if value is None else f"map<{key}, {value}>"
    else:
        one = _message_ddl(message, around, text)
    return f"array<{one}>" if field.is_repeated and one is not None else one
