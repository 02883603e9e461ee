"""How a broker registers its topics with a name server: as JSON, or in its own compressed form.

The compressed form is one zlib stream of

    int32 length   data version, JSON
    int32 count    topics, each: int32 length   text
    int32 length   filter servers, JSON
    int32 count    static topics, each: int32 length   mapping, JSON     senders from 5.0 on

The text of a topic is `name readQueues writeQueues perm filterType attributes`, separated by single spaces;
the attributes are JSON and only there from 5.0 on. The flags and the order of a topic are lost in it.

A registration may be large, so it is decoded in a thread. No single call into C may take long there, because
it would block the other threads.
"""

import re
import zlib
from copy import copy
from struct import Struct
from typing import Final

import msgspec
from msgspec import field

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol import json_body, registration_outline
from pyromq.protocol.body import Body, DataVersion
from pyromq.protocol.codes import V3_0_11, V5_0_0
from pyromq.protocol.compression import Compression, decompress
from pyromq.protocol.requests.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)

BEST_COMPRESSION: Final = 9
CRC_MASK: Final = 0x7FFFFFFF

MAX_TOPICS: Final = 250_000

_ODD = json_body.REQUEST._replace(odd_size_bytes=2 * 1024 * 1024, odd_values=100_000)
"""Documents with references or unquoted keys cannot be decoded in pieces."""

_INT32 = Struct(">i")
_TOPIC_TAIL = re.compile(
    rb"(-?\d{1,10}) (-?\d{1,10}) (-?\d{1,10}) (SINGLE_TAG|MULTI_TAG)(?: (.*))?", re.DOTALL
)


class RegisterBrokerBody(Body):
    """The topics a broker offers."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )


def body_crc32(data: bytes) -> int:
    """The checksum of a registration's body, which its header contains; 0 there means unchecked."""
    return zlib.crc32(data) & CRC_MASK


def encode_plain(body: RegisterBrokerBody, version: int) -> bytes:
    # java: releases before 3.0.11 sent nothing but the topics
    return json_body.encode(body if version >= V3_0_11 else body.topic_config_serialize_wrapper)


def encode_compressed(body: RegisterBrokerBody, version: int) -> bytes:
    topics = body.topic_config_serialize_wrapper
    chunks = [_sized(json_body.encode(topics.data_version)), _INT32.pack(len(topics.topic_config_table))]
    chunks += [_sized(encode_topic(config, version)) for config in topics.topic_config_table.values()]
    chunks.append(_sized(json_body.encode(body.filter_server_list)))
    if version >= V5_0_0:
        mappings = topics.topic_queue_mapping_info_map
        chunks.append(_INT32.pack(len(mappings)))
        chunks += [_sized(json_body.encode(mapping)) for mapping in mappings.values()]
    return zlib.compress(b"".join(chunks), BEST_COMPRESSION)


def _sized(chunk: bytes) -> bytes:
    return _INT32.pack(len(chunk)) + chunk


def decode(
    data: bytes, *, compressed: bool, version: int, max_bytes: int, max_topics: int = MAX_TOPICS
) -> RegisterBrokerBody:
    """Decode the registration of a sender of `version`; decompressed, it may have at most `max_bytes`."""
    if not data:
        return RegisterBrokerBody()
    if is_compressed(data, compressed=compressed):
        return _decode_compressed(decompress(data, Compression.ZLIB, max_bytes), version, max_topics)
    body = _decode_json(data, version)
    _check_topics(len(body.topic_config_serialize_wrapper.topic_config_table), max_topics)
    return body


def is_compressed(data: bytes, *, compressed: bool) -> bool:
    # java: brokers of 5.0 to 5.3 compress the body, but their header says that they did not
    return data[:1] == b"x" or (compressed and not data.startswith(b"{"))


def _check_topics(count: int, max_topics: int) -> None:
    if count > max_topics:
        raise RemoteProtocolError(f"registration with {count} topics; {max_topics} are allowed")


def _decode_json(data: bytes, version: int) -> RegisterBrokerBody:
    is_bare = version < V3_0_11
    try:
        if b"$ref" not in data:
            return _decode_in_pieces(data, is_bare)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RemoteProtocolError):
        pass  # The general path accepts more forms, and reports the error.
    if not is_bare:
        return json_body.decode(data, RegisterBrokerBody, _ODD)
    bare = json_body.decode(data, TopicConfigSerializeWrapper, _ODD)
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=bare.data_version, topic_config_table=bare.topic_config_table
        )
    )


def _decode_in_pieces(data: bytes, is_bare: bool) -> RegisterBrokerBody:
    if is_bare:
        outline = registration_outline.Outline(
            topic_config_serialize_wrapper=msgspec.json.decode(data, type=registration_outline.TopicsOutline)
        )
    else:
        outline = msgspec.json.decode(data, type=registration_outline.Outline)
    small = registration_outline.small
    topics = outline.topic_config_serialize_wrapper or registration_outline.TopicsOutline()
    content = TopicConfigAndMappingSerializeWrapper(
        data_version=small(topics.data_version, DataVersion),
        topic_config_table=registration_outline.topic_table(bytes(topics.topic_config_table)),
    )
    if not is_bare:
        content.mapping_data_version = small(topics.mapping_data_version, DataVersion)
        content.topic_queue_mapping_detail_map = small(
            topics.topic_queue_mapping_detail_map, dict[str, TopicQueueMappingDetail]
        )
        content.topic_queue_mapping_info_map = small(
            topics.topic_queue_mapping_info_map, dict[str, TopicQueueMappingInfo]
        )
    return RegisterBrokerBody(
        filter_server_list=small(outline.filter_server_list, list[str]),
        topic_config_serialize_wrapper=content,
    )


class _Chunks:
    """The int32 values and sized chunks of a decompressed body, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def count(self) -> int:
        """How many chunks follow; each takes four bytes at least."""
        number = self._int32()
        if not 0 <= number <= (len(self.data) - self.at) // _INT32.size:
            raise RemoteProtocolError(f"registration announces {number} entries with too few bytes for them")
        return number

    def chunk(self) -> bytes:
        length = self._int32()
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise RemoteProtocolError(f"registration announces {length} bytes at {self.at} and ends before")
        chunk = self.data[self.at : end]
        self.at = end
        return chunk

    def _int32(self) -> int:
        if self.at + _INT32.size > len(self.data):
            raise RemoteProtocolError("registration ends within a number")
        number: int = _INT32.unpack_from(self.data, self.at)[0]
        self.at += _INT32.size
        return number


def _decode_compressed(data: bytes, version: int, max_topics: int) -> RegisterBrokerBody:
    chunks = _Chunks(data)
    data_version = json_body.decode(chunks.chunk(), DataVersion, json_body.REQUEST)
    topics: dict[str, TopicConfig] = {}
    decode_text = _TopicDecoder().decode
    count = chunks.count()
    _check_topics(count, max_topics)
    for _ in range(count):
        config = decode_text(chunks.chunk())
        topics[config.topic_name] = config
    filters = chunks.chunk()
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= V5_0_0 and chunks.at < len(data):
        count = chunks.count()
        _check_topics(count, max_topics)
        for _ in range(count):
            mapping = json_body.decode(chunks.chunk(), TopicQueueMappingInfo, json_body.REQUEST)
            mappings[mapping.topic or ""] = mapping
    return RegisterBrokerBody(
        filter_server_list=(
            [] if filters == b"null" else json_body.decode(filters, list[str], json_body.REQUEST)
        ),
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=data_version,
            topic_config_table=topics,
            topic_queue_mapping_info_map=mappings,
        ),
    )


def encode_topic(config: TopicConfig, version: int) -> bytes:
    """The text of a topic."""
    if " " in config.topic_name:
        raise LocalProtocolError(f"the name of topic {config.topic_name!r} has a space")
    text = (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
        f"{config.topic_filter_type}"
    ).encode()
    if version < V5_0_0:
        return text
    return text + b" " + (json_body.encode(config.attributes) if config.attributes else b"{}")


class _TopicDecoder:
    """Decodes the texts of topics. Most topics differ only in their names, so the rest is decoded once."""

    def __init__(self) -> None:
        self._nameless: dict[bytes, TopicConfig] = {}

    def decode(self, text: bytes) -> TopicConfig:
        name, _, tail = text.partition(b" ")
        nameless = self._nameless.get(tail)
        if nameless is None:
            nameless = self._nameless[tail] = _decode_tail(tail)
        config = copy(nameless)
        config.attributes = nameless.attributes.copy()
        try:
            config.topic_name = name.decode()
        except UnicodeDecodeError as problem:
            raise RemoteProtocolError(f"the name of a topic is not UTF-8: {problem}") from None
        return config


def _decode_tail(tail: bytes) -> TopicConfig:
    match = _TOPIC_TAIL.fullmatch(tail)
    if match is None:
        raise RemoteProtocolError(f"not the configuration of a topic: {tail[:80]!r}")
    read_queues, write_queues, perm = (int(number) for number in match.group(1, 2, 3))
    if not all(-(2**31) <= number < 2**31 for number in (read_queues, write_queues, perm)):
        raise RemoteProtocolError(f"the configuration of a topic has numbers beyond int32: {tail[:80]!r}")
    try:
        attributes = json_body.decode(match[5] or b"{}", dict[str, str], json_body.REQUEST)
    except RemoteProtocolError:
        # java: attributes that cannot be decoded are ignored
        attributes = {}
    return TopicConfig(
        attributes=attributes,
        perm=perm,
        read_queue_nums=read_queues,
        topic_filter_type=TopicFilterType(match[4].decode()),
        topic_name="",
        write_queue_nums=write_queues,
    )
