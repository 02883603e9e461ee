"""A copy of the broker's tables next to the manifests: topics, groups, and what the groups have read.

The log does not have them, so without a copy a store that is rebuilt from the tier would have messages that
no group knows. The newest manifest names the copy that counts. Users and their secrets are not in it.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from pyromq.errors import PyroError, RemoteProtocolError
from pyromq.filesystem import BACKUP_SUFFIX, Files
from pyromq.protocol import json_body
from pyromq.protocol.compression import Compression, decompress
from pyromq.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from pyromq.protocol.requests.topics import TopicConfigSerializeWrapper
from pyromq.tier.names import tables_name
from pyromq.tier.objects import Objects, create_settled
from pyromq.tier.segment_format import BadObject

_VERSION: Final = 1
_MAX_BYTES: Final = 1024 * 1024 * 1024
TOPICS: Final = "topics.json"
_OFFSETS: Final = "consumerOffset.json"
_DELAYS: Final = "delayOffset.json"
COPIED: Final = (
    TOPICS,
    "topicQueueMapping.json",
    "subscriptionGroup.json",
    _OFFSETS,
    _DELAYS,
    "messageRequestMode.json",
)
"""The files under `config/` of which there is a copy."""


class TieredTables(msgspec.Struct, frozen=True, rename="camel"):
    log_end: int
    """Where the log ended just before the files were read."""
    files: dict[str, str]
    version: int = _VERSION


def copied_tables(files: Files, config: Path, log_end: int) -> TieredTables:
    """The tables that are on disk now. A file that is being replaced is read from its backup."""
    found = {}
    for name in COPIED:
        for path in (config / name, config / (name + BACKUP_SUFFIX)):
            with suppress(OSError, UnicodeDecodeError):
                content = files.read(path).decode()
                if content:
                    found[name] = content
                    break
    return TieredTables(log_end, found)


def put_tables(objects: Objects, tables: TieredTables, writer: str, before: str = "") -> str:
    """Store a copy, unless `before` names one of this writer with the same content; its name. No other writer
    gives this name: a master that was replaced may be about to remove its leftovers."""
    content = writer.encode() + b"\0" + msgspec.json.encode(tables.files, order="sorted")
    name = tables_name(tables.log_end, hashlib.sha256(content).hexdigest())
    if before.rpartition("-")[2] == name.rpartition("-")[2]:
        return before
    create_settled_or_same(objects, name, pack_tables(tables))
    return name


def create_settled_or_same(objects: Objects, name: str, content: bytes) -> None:
    """The name depends on the content, so it does not matter who was first."""
    if objects.info(name) is None:
        create_settled(objects, name, content)


def pack_tables(tables: TieredTables) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(msgspec.json.encode(tables, order="sorted"))


def parse_tables(raw: bytes) -> TieredTables:
    """Raises BadObject."""
    try:
        tables = msgspec.json.decode(decompress(raw, Compression.ZSTD, _MAX_BYTES), type=TieredTables)
    except (RemoteProtocolError, msgspec.DecodeError) as problem:
        raise BadObject(f"a copy of tables: {problem}") from None
    if tables.version != _VERSION:
        raise BadObject(f"a copy of tables of version {tables.version}: this program knows {_VERSION}")
    if unknown := tables.files.keys() - set(COPIED):
        raise BadObject(f"a copy of tables has the file {min(unknown)!r}")
    return tables


End = Callable[[str, int], int]
"""Where a queue ends in the log that is there."""


def fitted(tables: TieredTables, deleted_before: Mapping[str, int], end_of: End) -> dict[str, bytes]:
    """The files for a log that ends earlier than the tables say. Raises BadObject.

    A topic whose deletion is newer than the copy is omitted. A group that had read messages behind the end
    of a queue continues at the end: new messages get the offsets of those that are lost.
    """

    def is_deleted(topic: str) -> bool:
        return deleted_before.get(topic, 0) >= tables.log_end > 0

    def fitted_topics(table: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        kept = {name: each for name, each in table.topic_config_table.items() if not is_deleted(name)}
        return msgspec.structs.replace(table, topic_config_table=kept)

    def fitted_offsets(table: ConsumerOffsetSerializeWrapper) -> ConsumerOffsetSerializeWrapper:
        kept = {}
        for key, queues in table.offset_table.items():
            topic = key.partition("@")[0]
            if topic.startswith(LMQ_PREFIX):
                kept[key] = queues  # its messages are in other topics' queues
            elif not is_deleted(topic):
                kept[key] = {each: min(offset, end_of(topic, each)) for each, offset in queues.items()}
        return msgspec.structs.replace(table, offset_table=kept)

    def fitted_delays(table: DelayOffsetSerializeWrapper) -> DelayOffsetSerializeWrapper:
        kept = {
            level: min(offset, end_of(SCHEDULE_TOPIC, level - 1))
            for level, offset in table.offset_table.items()
        }
        return msgspec.structs.replace(table, offset_table=kept)

    changes: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        TOPICS: (TopicConfigSerializeWrapper, fitted_topics),
        _OFFSETS: (ConsumerOffsetSerializeWrapper, fitted_offsets),
        _DELAYS: (DelayOffsetSerializeWrapper, fitted_delays),
    }
    found = {}
    for name, text in tables.files.items():
        content = text.encode()
        if name in changes:
            type_, fit = changes[name]
            try:
                content = json_body.encode(fit(json_body.decode(content, type_)))
            except PyroError as problem:
                raise BadObject(f"the copy of {name}: {problem}") from None
        found[name] = content
    return found
