"""A stored message for people and scripts: the body as text if it is text, else in base64."""

from typing import Any

from pyromq.admin.messages import offset_id
from pyromq.cli.mqadmin.report import Fact
from pyromq.cli.mqadmin.times import to_milliseconds
from pyromq.cli.stored_messages import body_field, stored_fields
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.properties import KEYS, TAGS
from pyromq.protocol.record import StoredMessage

LABEL_LINE = "{0:<20} {1}"


def body_text(message: StoredMessage, charset: str = "utf-8") -> str:
    """The body in a charset, or its size if it cannot be decoded."""
    try:
        return message.body.decode(charset)
    except UnicodeDecodeError:
        return f"({len(message.body)} bytes, not {charset})"


def data(message: StoredMessage) -> dict[str, Any]:
    """Every stored field."""
    ids = {"msgId": shown_message_id(message), "offsetMsgId": offset_id(message)}
    return {**ids, **stored_fields(message), "bodyCrc": message.body_crc, **body_field(message.body)}


def facts(message: StoredMessage, charset: str = "utf-8") -> list[Fact]:
    """A message, one field per line."""
    properties = ", ".join(f"{name}={value}" for name, value in message.property_map().items())
    return [
        Fact("MsgID:", "msgId", shown_message_id(message)),
        Fact("OffsetID:", "offsetMsgId", offset_id(message)),
        Fact("Topic:", "topic", message.topic),
        Fact("Tags:", "tags", f"[{message.get(TAGS)}]".replace("None", "null")),
        Fact("Keys:", "keys", f"[{message.get(KEYS)}]".replace("None", "null")),
        Fact("Queue ID:", "queueId", message.queue_id),
        Fact("Queue Offset:", "queueOffset", message.queue_offset),
        Fact("CommitLog Offset:", "commitLogOffset", message.log_offset),
        Fact("Reconsume Times:", "reconsumeTimes", message.reconsume_times),
        Fact("Born Timestamp:", "bornTimestamp", message.born_timestamp, to_milliseconds),
        Fact("Store Timestamp:", "storeTimestamp", message.store_timestamp, to_milliseconds),
        Fact("Born Host:", "bornHost", str(message.born_host)),
        Fact("Store Host:", "storeHost", str(message.store_host)),
        Fact("System Flag:", "sysFlag", message.sys_flag),
        Fact("Properties:", "properties", f"{{{properties}}}"),
        Fact("Message Body:", "body", body_text(message, charset)),
    ]


def line(message: StoredMessage, broker_name: str, charset: str = "utf-8", *, with_body: bool = True) -> str:
    """A message on one line."""
    body = body_text(message, charset) if with_body else "NOT PRINT BODY"
    return (
        f"MSGID: {shown_message_id(message)} brokerName={broker_name}, queueId={message.queue_id},"
        f" queueOffset={message.queue_offset}, storeTimestamp={message.store_timestamp},"
        f" reconsumeTimes={message.reconsume_times}, topic={message.topic}, tags={message.get(TAGS) or ''},"
        f" keys={message.get(KEYS) or ''} BODY: {body}"
    )
