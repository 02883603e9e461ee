"""Stored messages as text: the body as text if it is UTF-8, else in base64."""

import base64
import json

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.compression import compression_of, decompress
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import StoredMessage, SysFlag


def message_id(message: StoredMessage) -> str:
    """The id that finds the message in its broker's log."""
    return encode_offset_message_id(message.store_host, message.log_offset)


def plain_body(message: StoredMessage) -> bytes:
    """The body, decompressed if possible."""
    if message.sys_flag & SysFlag.COMPRESSED:
        try:
            return decompress(message.body, compression_of(message.sys_flag))
        except RemoteProtocolError:
            # Show a broken body as it is stored: that is why someone inspects a store.
            return message.body
    return message.body


def body_text(message: StoredMessage) -> str | None:
    """The body, if it is UTF-8 text."""
    try:
        return plain_body(message).decode()
    except UnicodeDecodeError:
        return None


def as_json(message: StoredMessage) -> str:
    """Everything stored, as one line. The body is `body` if it is text, else `bodyBase64`."""
    text = body_text(message)
    body = (
        {"body": text}
        if text is not None
        else {"bodyBase64": base64.b64encode(plain_body(message)).decode("ascii")}
    )
    return json.dumps(
        {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "commitLogOffset": message.log_offset,
            "msgId": message_id(message),
            "storeTimestamp": message.store_timestamp,
            "storeHost": str(message.store_host),
            "bornTimestamp": message.born_timestamp,
            "bornHost": str(message.born_host),
            "flag": message.flag,
            "sysFlag": message.sys_flag,
            "reconsumeTimes": message.reconsume_times,
            "preparedTransactionOffset": message.prepared_transaction_offset,
            "properties": message.property_map(),
            **body,
        },
        ensure_ascii=False,
    )
