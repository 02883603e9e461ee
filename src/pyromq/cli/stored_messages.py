"""Stored messages as text: the body as text if it is UTF-8, else in base64."""

import base64
import json
from typing import Any

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.message import decompress_body
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import StoredMessage


def message_id(message: StoredMessage) -> str:
    """The id that finds the message in its broker's log."""
    return encode_offset_message_id(message.store_host, message.log_offset)


def plain_body(message: StoredMessage) -> bytes:
    """The body, decompressed if possible."""
    try:
        return decompress_body(message).body
    except RemoteProtocolError:
        # Show a broken body as it is stored: that is why someone inspects a store.
        return message.body


def body_text(message: StoredMessage) -> str | None:
    """The body, if it is UTF-8 text."""
    try:
        return plain_body(message).decode()
    except UnicodeDecodeError:
        return None


def as_json(message: StoredMessage) -> str:
    """Everything stored, as one line."""
    described = {"msgId": message_id(message), **stored_fields(message), **body_field(plain_body(message))}
    return json.dumps(described, ensure_ascii=False)


def stored_fields(message: StoredMessage) -> dict[str, Any]:
    """All fields but the ids and the body."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.log_offset,
        "storeTimestamp": message.store_timestamp,
        "storeHost": str(message.store_host),
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.property_map(),
    }


def body_field(body: bytes) -> dict[str, str]:
    """The body as `body` if it is text, else as `bodyBase64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode("ascii")}
