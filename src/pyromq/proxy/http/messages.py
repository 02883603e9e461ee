"""Plain messages: send to a topic of any kind, receive for a group, and acknowledge.

A received message is hidden from the rest of its group until it is acknowledged or its time is over. Its
receipt says all that an acknowledgement needs, so any front takes it.
"""

import itertools
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import msgspec

from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.reading.subscriptions import Sql, Subscription
from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.needs import PUB, SUB, ResourceType, need_of
from pyromq.protocol.pop_receipt import PopReceipt, decode_pop_receipt, encode_pop_receipt
from pyromq.protocol.popped import ack_request, change_request, changed_receipt
from pyromq.protocol.properties import RESERVED_NAMES
from pyromq.proxy.checks import check_group, check_invisible_time, check_topic
from pyromq.proxy.codes import OK
from pyromq.proxy.context import FrontContext
from pyromq.proxy.http.app import Answered, Asked, HttpApp
from pyromq.proxy.http.bodies import read_body, shown_body
from pyromq.proxy.http.exchange import Exchange
from pyromq.proxy.http.identity import HttpAccess
from pyromq.proxy.http.problems import HttpError
from pyromq.proxy.messages import enum_values, message
from pyromq.proxy.outgoing import prepare
from pyromq.proxy.sending import ProxySending

_Message = message("Message")
_MAX_AT_ONCE: Final = 32
_MAX_GROUPS: Final = 1000
_MESSAGE_TYPES: Final = enum_values("MessageType")


class SentOverHttp(msgspec.Struct, frozen=True, rename="camel"):
    """A message as it is sent."""

    text: str | None = None
    base64: str | None = None
    tag: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    message_group: str | None = None
    """Messages of one group stay in order; the topic must be of the type FIFO."""
    deliver_at_ms: int | None = None
    """The topic must be of the type DELAY."""


class _Sending(msgspec.Struct, frozen=True):
    messages: list[SentOverHttp]


class _Receiving(msgspec.Struct, frozen=True, rename="camel"):
    group: str
    max_messages: int = 16
    invisible_seconds: float = 60.0
    wait_seconds: float = 0.0
    tags: str = "*"
    sql: str | None = None


class _Settling(msgspec.Struct, frozen=True, rename="camel"):
    group: str
    receipts: list[str]
    invisible_seconds: float = 60.0
    """Only to hide messages for another time."""


class HttpMessages:
    def __init__(
        self, context: FrontContext, sending: ProxySending, access: HttpAccess, app: HttpApp
    ) -> None:
        self._cluster = context.cluster
        self._session = context.cluster.session
        self._settings = context.settings
        self._clock = context.clock
        self._sending = sending
        self._access = access
        self._readings: dict[str, PopReading] = {}
        self._turns = itertools.count()
        app.add("POST", "v1/topics/*/messages", self.send)
        app.add("POST", "v1/topics/*/receive", self.receive)
        app.add("POST", "v1/topics/*/ack", self.ack)
        app.add("POST", "v1/topics/*/hide", self.hide)

    def __repr__(self) -> str:
        return f"<HttpMessages groups={len(self._readings)}>"

    async def send(self, exchange: Exchange, asked: Asked) -> Answered:
        caller, topic = self._access.identify(exchange.head), check_topic(asked[0])
        self._access.authorize(caller, (need_of((PUB,), ResourceType.TOPIC, topic),))
        wanted = _decoded(await exchange.body.read(), _Sending).messages
        if not 1 <= len(wanted) <= _MAX_AT_ONCE:
            raise HttpError(400, f"{len(wanted)} messages, expected 1 to {_MAX_AT_ONCE}")
        now_ms = self._clock.now_ms()
        prepared = [
            prepare(self._outgoing(topic, each, now_ms), self._settings, now_ms, exchange.head.peer_address)
            for each in wanted
        ]
        answer = await self._sending.send_prepared(prepared)
        results = [
            {"messageId": entry.message_id, "offset": entry.offset}
            if entry.status.code == OK.code
            else {"error": entry.status.message}
            for entry in answer.entries
        ]
        failed = sum("error" in each for each in results)
        return Answered(201 if not failed else 502 if failed == len(results) else 207, {"messages": results})

    def _outgoing(self, topic: str, sent: SentOverHttp, now_ms: int) -> Any:
        made = _Message(body=read_body(sent.text, sent.base64), user_properties=sent.properties)
        made.topic.name = topic
        system = made.system_properties
        system.message_id = self._session.unique_keys.next(now_ms)
        kind = "NORMAL"
        if sent.tag is not None:
            system.tag = sent.tag
        system.keys.extend(sent.keys)
        if sent.message_group is not None:
            system.message_group, kind = sent.message_group, "FIFO"
        if sent.deliver_at_ms is not None:
            if not 0 <= sent.deliver_at_ms < 2**53:
                raise HttpError(400, f"deliverAtMs is {sent.deliver_at_ms}, expected milliseconds since 1970")
            system.delivery_timestamp.FromMilliseconds(sent.deliver_at_ms)
            kind = "DELAY"
        system.message_type = _MESSAGE_TYPES[kind]
        return made

    # Receiving

    async def receive(self, exchange: Exchange, asked: Asked) -> Answered:
        wanted = _decoded(await self._admitted(exchange, asked), _Receiving)
        topic, group = check_topic(asked[0]), self._check_reader(exchange, asked, wanted.group)
        if not 1 <= wanted.max_messages <= _MAX_AT_ONCE:
            raise HttpError(400, f"maxMessages is {wanted.max_messages}, expected 1 to {_MAX_AT_ONCE}")
        longest_s = self._settings.max_polling_ms / 1000
        if not 0 <= wanted.wait_seconds <= longest_s:
            raise HttpError(400, f"waitSeconds is {wanted.wait_seconds}, expected 0 to {longest_s:g}")
        settings = self._settings
        invisible_ms = check_invisible_time(
            round(wanted.invisible_seconds * 1000), settings.min_invisible_ms, settings
        )
        expression = Sql(wanted.sql) if wanted.sql is not None else wanted.tags
        subscription = Subscription.of(topic, expression, self._clock.now_ms())
        route = await self._cluster.route(topic)
        names = list(dict.fromkeys(route.broker_of(queue) for queue in route.subscribe_queues))
        begin = next(self._turns)
        names = [names[(begin + number) % len(names)] for number in range(len(names))]
        found: list[PoppedMessage] = []
        for number, name in enumerate(names):
            # The last one may wait: by then the others had nothing.
            wait_s = wanted.wait_seconds if number == len(names) - 1 else 0.0
            reading = self._reading(group)
            found = await reading.pop(name, subscription, wanted.max_messages, invisible_ms / 1000, wait_s)
            if found:
                break
        return Answered(200, {"messages": [_received(each) for each in found]})

    def _reading(self, group: str) -> PopReading:
        reading = self._readings.get(group)
        if reading is None:
            if len(self._readings) >= _MAX_GROUPS:
                self._readings.clear()
            timeout_s = self._settings.send_timeout_ms / 1000
            reading = self._readings[group] = PopReading(self._session, group, timeout_s, "first")
        return reading

    async def _admitted(self, exchange: Exchange, asked: Asked) -> bytes:
        """The body, once it is known that its sender may read the topic."""
        caller, topic = self._access.identify(exchange.head), check_topic(asked[0])
        self._access.authorize(caller, (need_of((SUB,), ResourceType.TOPIC, topic),))
        return await exchange.body.read()

    def _check_reader(self, exchange: Exchange, asked: Asked, name: str) -> str:
        group = check_group(name)
        caller = self._access.identify(exchange.head)
        self._access.authorize(caller, (need_of((SUB,), ResourceType.GROUP, group),))
        return group

    async def ack(self, exchange: Exchange, asked: Asked) -> Answered:
        settling, topic, receipts = await self._settled(exchange, asked)
        for receipt in receipts:
            request = ack_request(receipt, topic, settling.group, receipt.queue_offset or 0)
            await self._cluster.call(receipt.broker_name, request, None)
        return Answered(204)

    async def hide(self, exchange: Exchange, asked: Asked) -> Answered:
        """Let messages be delivered again at another time; their new receipts."""
        settling, topic, receipts = await self._settled(exchange, asked)
        hidden_ms = check_invisible_time(round(settling.invisible_seconds * 1000), 0, self._settings)
        changed = []
        for receipt in receipts:
            offset = receipt.queue_offset or 0
            request = change_request(receipt, topic, settling.group, offset, hidden_ms)
            answer = await self._cluster.call(receipt.broker_name, request, None)
            changed.append(_closed(changed_receipt(receipt, offset, answer)))
        return Answered(200, {"receipts": changed})

    async def _settled(self, exchange: Exchange, asked: Asked) -> tuple[_Settling, str, list[PopReceipt]]:
        settling = _decoded(await self._admitted(exchange, asked), _Settling)
        self._check_reader(exchange, asked, settling.group)
        if not 1 <= len(settling.receipts) <= _MAX_AT_ONCE:
            raise HttpError(400, f"{len(settling.receipts)} receipts, expected 1 to {_MAX_AT_ONCE}")
        topic = check_topic(asked[0])
        route = await self._cluster.route(topic)
        brokers = {route.broker_of(queue) for queue in route.subscribe_queues}
        receipts = [_opened(each) for each in settling.receipts]
        for receipt in receipts:
            if receipt.broker_name not in brokers:
                raise HttpError(400, f"a receipt is of the broker {receipt.broker_name}, which lacks {topic}")
        return settling, topic, receipts


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as problem:
        raise HttpError(400, f"the body is not as expected: {problem}") from None


def _received(found: PoppedMessage) -> dict[str, Any]:
    receipt = msgspec.structs.replace(found.receipt, queue_offset=found.queue_offset)
    shown: dict[str, Any] = {
        "messageId": found.message_id,
        "receipt": _closed(receipt),
        "attempt": found.reconsume_times + 1,
        "bornMs": found.born_ms,
        "storedMs": found.stored_ms,
        "tag": found.tags,
        "keys": list(found.keys),
        "properties": {name: text for name, text in found.properties.items() if name not in RESERVED_NAMES},
        "queue": {
            "broker": found.queue.broker_name,
            "id": found.queue.queue_id,
            "offset": found.queue_offset,
        },
    }
    text, closed = shown_body(found.body)
    return shown | ({"text": text} if closed is None else {"base64": closed})


def _closed(receipt: PopReceipt) -> str:
    return urlsafe_b64encode(encode_pop_receipt(receipt).encode()).decode().rstrip("=")


def _opened(text: str) -> PopReceipt:
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)).decode()
        receipt = decode_pop_receipt(content)
    except (ValueError, RemoteProtocolError, LocalProtocolError):
        receipt = None
    if receipt is None or receipt.queue_offset is None:
        raise HttpError(400, f"the receipt {text[:60]!r} cannot be read")
    return receipt
