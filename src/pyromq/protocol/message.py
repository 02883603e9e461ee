"""Turns a stored record into the messages that a reader sees: decompressed, and out of inner batches."""

from collections.abc import Callable

from msgspec.structs import replace

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.compression import DEFAULT_MAX_BYTES, compression_of, decompress
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.properties import UNIQ_KEY
from pyromq.protocol.record import StoredMessage, SysFlag

_WRAPPED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def open_message(
    message: StoredMessage,
    max_bytes: int = DEFAULT_MAX_BYTES,
    on_problem: Callable[[RemoteProtocolError], None] | None = None,
) -> list[StoredMessage]:
    """The messages inside `message`: itself with its body decompressed, or each message of an inner batch.

    `max_bytes` limits a decompressed body. The flags are cleared accordingly, so opening twice is harmless.
    A body that is not what its flags say stays as it is stored: everyone who sends can set any flag, and one
    such message must not stop all readers of a queue.
    """
    try:
        return _opened(decompress_body(message, max_bytes))
    except RemoteProtocolError as problem:
        if on_problem is not None:
            on_problem(problem)
        return [replace(message, sys_flag=message.sys_flag & ~(_WRAPPED | SysFlag.COMPRESSED))]


def _opened(message: StoredMessage) -> list[StoredMessage]:
    if message.sys_flag & _WRAPPED != _WRAPPED:
        return [message]
    return [
        replace(
            message,
            body=entry.body,
            properties=entry.properties,
            flag=entry.flag,
            queue_offset=message.queue_offset + index,
            sys_flag=message.sys_flag & ~_WRAPPED,
            reconsume_times=0,  # java: an outer count says nothing about the messages inside
        )
        for index, entry in enumerate(decode_batch(message.body))
    ]


def decompress_body(message: StoredMessage, max_bytes: int = DEFAULT_MAX_BYTES) -> StoredMessage:
    """`message` with a decompressed body; the same object if the body was not compressed."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return message
    sys_flag = message.sys_flag & ~SysFlag.COMPRESSED
    if not message.body:
        return replace(message, sys_flag=sys_flag)  # java: an empty body is never decompressed
    body = decompress(message.body, compression_of(message.sys_flag), max_bytes)
    return replace(message, body=body, sys_flag=sys_flag)


def shown_message_id(message: StoredMessage) -> str:
    """The id shown to users: the producer's unique key, else the offset message id."""
    return message.get(UNIQ_KEY) or encode_offset_message_id(message.store_host, message.log_offset)
