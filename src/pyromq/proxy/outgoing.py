"""From a client's message to one that can be sent, with the properties that brokers understand."""

from typing import Any, cast

import msgspec

from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import LocalProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.properties import KEY_SEPARATOR, encode_properties
from pyromq.protocol.record import SysFlag
from pyromq.proxy.checks import (
    check_body,
    check_key,
    check_lite_topic,
    check_message_group,
    check_properties,
    check_tag,
    check_topic,
    milliseconds,
)
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.messages import enum_values
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import DELAY, FIFO, LITE, NORMAL, PRIORITY, TRANSACTION

_TRANSACTION = enum_values("MessageType")["TRANSACTION"]
_GZIP = enum_values("Encoding")["GZIP"]


class Outgoing(msgspec.Struct, frozen=True):
    """A checked message."""

    message: PreparedMessage
    message_type: str
    message_group: str
    """All messages with the same one go to the same queue; it may also be a lite topic."""


def prepare(message: Any, settings: ProxySettings, now_ms: int, peer_address: str) -> Outgoing:
    """Raises Rejected if the message cannot be sent."""
    topic = check_topic(message.topic.name)
    system = message.system_properties
    check_body(message.body, settings)
    born_ms = milliseconds(system.born_timestamp) if system.HasField("born_timestamp") else 0
    properties = _properties(message, topic, settings, now_ms, born_ms, peer_address)
    sys_flag = SysFlag.COMPRESSED if system.body_encoding == _GZIP else 0
    if props.TRANSACTION_PREPARED in properties:
        sys_flag |= SysFlag.TRANSACTION_PREPARED
    try:
        text = encode_properties(properties)
    except LocalProtocolError as problem:
        raise Rejected(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(problem)) from None
    prepared = PreparedMessage(topic, message.body, text, system.message_id, born_ms or now_ms, sys_flag)
    return Outgoing(prepared, _type_of(properties), system.message_group or system.lite_topic)


def _properties(
    message: Any, topic: str, settings: ProxySettings, now_ms: int, born_ms: int, peer_address: str
) -> dict[str, str | None]:
    system = message.system_properties
    properties: dict[str, str | None] = dict(message.user_properties)
    # java: keys without text are passed over
    tag, keys, message_id = system.tag, KEY_SEPARATOR.join(filter(None, system.keys)), system.message_id
    check_properties(cast(dict[str, str], properties), tag + keys, settings)
    if not message_id.strip():
        raise Rejected(Code.ILLEGAL_MESSAGE_ID, "the message has no id")
    properties[props.UNIQ_KEY] = message_id
    properties[props.PRODUCER_GROUP] = topic
    properties[props.WAIT] = "true"
    if tag:
        check_tag(tag)
        properties[props.TAGS] = tag
    if keys:
        for key in filter(None, system.keys):
            check_key(key)
        properties[props.KEYS] = keys
    if system.HasField("message_group"):
        check_message_group(system.message_group, settings)
        properties[props.SHARDING_KEY] = system.message_group
    if system.message_type == _TRANSACTION:
        properties[props.TRANSACTION_PREPARED] = "true"
        recovery_s = system.orphaned_transaction_recovery_duration.seconds
        if system.HasField("orphaned_transaction_recovery_duration"):
            if recovery_s > settings.max_transaction_recovery_seconds:
                raise Rejected(
                    Code.BAD_REQUEST,
                    f"a recovery after {recovery_s} s; the limit is"
                    f" {settings.max_transaction_recovery_seconds} s",
                )
            properties[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(recovery_s)
    if system.HasField("delivery_timestamp"):
        deliver_ms = milliseconds(system.delivery_timestamp)
        if deliver_ms - now_ms > settings.max_delay_ms > 0:
            raise Rejected(
                Code.ILLEGAL_DELIVERY_TIME,
                f"a delivery {deliver_ms - now_ms} ms ahead; at most {settings.max_delay_ms} ms are allowed",
            )
        properties[props.TIMER_DELIVER_MS] = str(deliver_ms)
    if system.HasField("priority"):
        if system.priority < 0:
            raise Rejected(Code.BAD_REQUEST, f"the priority is {system.priority}, expected 0 or more")
        properties[props.PRIORITY] = str(system.priority)
    if system.HasField("lite_topic"):
        properties[props.LITE_TOPIC] = check_lite_topic(system.lite_topic, settings)
    if system.trace_context:
        properties[props.TRACE_CONTEXT] = system.trace_context
    properties[props.BORN_HOST] = system.born_host or peer_address.rpartition(":")[0].strip("[]")
    if born_ms:
        properties[props.BORN_TIMESTAMP] = str(born_ms)
    if system.delivery_attempt:
        properties[props.RECONSUME_TIME] = str(system.delivery_attempt)
    return properties


def _type_of(properties: dict[str, str | None]) -> str:
    if props.TRANSACTION_PREPARED in properties:
        return TRANSACTION
    if props.TIMER_DELIVER_MS in properties:
        return DELAY
    if props.SHARDING_KEY in properties:
        return FIFO
    if props.PRIORITY in properties:
        return PRIORITY
    return LITE if props.LITE_TOPIC in properties else NORMAL
