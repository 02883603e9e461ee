"""A registration in JSON, decoded in pieces: first its outline, then one part after the other.

It may have a hundred thousand topics. Decoding it in one call would block all other threads for a third of a
second.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import json_body
from pyromq.protocol.requests.topics import TopicConfig

_PIECE_BYTES = 64 * 1024
_MAX_PIECE_BYTES = 512 * 1024

T = TypeVar("T")


class TopicsOutline(msgspec.Struct, rename="camel"):
    data_version: Raw = Raw(b"{}")
    mapping_data_version: Raw = Raw(b"{}")
    topic_config_table: Raw = Raw(b"{}")
    topic_queue_mapping_detail_map: Raw = Raw(b"{}")
    topic_queue_mapping_info_map: Raw = Raw(b"{}")


class Outline(msgspec.Struct, rename="camel"):
    filter_server_list: Raw = Raw(b"[]")
    topic_config_serialize_wrapper: TopicsOutline | None = None


def small(raw: Raw, type_: type[T]) -> T:
    return json_body.decode(bytes(raw), type_, json_body.REQUEST)


def topic_table(text: bytes) -> dict[str, TopicConfig]:
    """The members of an object, some at a time. A cut in the wrong place leaves no JSON before it."""
    table: dict[str, Any] = {}
    start = counted = 1
    end, open_braces = len(text) - 1, 0
    while start < end:
        cut = text.find(b'},"', max(start + _PIECE_BYTES, counted), end) + 1 or end
        if cut - start > _MAX_PIECE_BYTES:
            raise RemoteProtocolError(f"no topic ends within {_MAX_PIECE_BYTES} bytes")
        open_braces += text.count(b"{", counted, cut) - text.count(b"}", counted, cut)
        counted = cut
        if open_braces and cut < end:
            continue  # it is the end of something within a topic
        table |= json_body.decode(b"{%b}" % text[start:cut], dict[str, TopicConfig], json_body.REQUEST)
        start = counted = cut + 1
        open_braces = 0
    return table
