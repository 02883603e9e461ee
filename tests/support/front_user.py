"""A client of the gRPC front, as RocketMQ's own clients are: one id, one stream, and its calls."""

import hashlib
import hmac
import time
from typing import Any, NamedTuple

from pyromq.proxy.messages import SERVICE, enum_values, message, rpc_types

CODES = {number: name for name, number in enum_values("Code").items()}
MESSAGE_TYPES = enum_values("MessageType")
CLIENT_TYPES = enum_values("ClientType")
LITE_ACTIONS = enum_values("LiteSubscriptionAction")
RPCS = rpc_types()

Resource = message("Resource")
Message = message("Message")
Settings = message("Settings")
TelemetryCommand = message("TelemetryCommand")


class Received(NamedTuple):
    code: str
    messages: list[Any]

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]


def _of(group: str, topic: str) -> dict[str, Any]:
    return {"group": Resource(name=group), "topic": Resource(name=topic)}


def _entry(received: Any) -> dict[str, str]:
    system = received.system_properties
    return {"message_id": system.message_id, "receipt_handle": system.receipt_handle} | _lite(received)


def _lite(received: Any) -> dict[str, Any]:
    system = received.system_properties
    return {"lite_topic": system.lite_topic} if system.HasField("lite_topic") else {}


def aged_id(age_s: float) -> str:
    """The id of a client that started so long ago, as Python's client makes it."""
    digits, rest = "", time.time_ns() - int(age_s * 1e9)
    while rest:
        rest, digit = divmod(rest, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"host@1@0@{digits}"


class FrontUser:
    def __init__(self, channel: Any, client_id: str) -> None:
        """`channel`: C-core's, or one like it."""
        self._channel = channel
        self.client_id = client_id
        self.metadata = [
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-protocol", "v2"),
        ]

    def sign(self, name: str, secret: str, when: str | None = None) -> None:
        """Sign all calls from now on. java: the signature is in upper case, and the time is local."""
        when = when or time.strftime("%Y%m%dT%H%M%SZ")
        signature = hmac.new(secret.encode(), when.encode(), hashlib.sha1).hexdigest().upper()
        parts = f"Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
        self.metadata += [("x-mq-date-time", when), ("authorization", f"MQv2-HMAC-SHA1 {parts}")]

    async def call(self, rpc: str, *, timeout: float = 10, **fields: Any) -> Any:
        types = RPCS[rpc]
        stub = self._channel.unary_unary(
            f"/{SERVICE}/{rpc}", types.request_type.SerializeToString, types.answer_type.FromString
        )
        return await stub(types.request_type(**fields), metadata=self.metadata, timeout=timeout)

    async def code(self, rpc: str, **fields: Any) -> str:
        return CODES[(await self.call(rpc, **fields)).status.code]

    def message(self, topic: str, body: bytes = b"body", **system: Any) -> Any:
        system.setdefault("message_id", f"01{len(body):032X}")
        system.setdefault("message_type", MESSAGE_TYPES["NORMAL"])
        sent = Message(topic=Resource(name=topic), body=body)
        sent.user_properties.update(system.pop("properties", {}))
        deliver_ms = system.pop("deliver_ms", None)
        for name, value in system.items():
            if name == "keys":
                sent.system_properties.keys.extend(value)
            else:
                setattr(sent.system_properties, name, value)
        sent.system_properties.born_timestamp.GetCurrentTime()
        if deliver_ms is not None:
            sent.system_properties.delivery_timestamp.FromMilliseconds(deliver_ms)
        return sent

    async def send(self, *messages: Any) -> Any:
        return await self.call("SendMessage", messages=messages)

    async def receive(self, group: str, topic: str, *, invisible_s: int = 30, **options: Any) -> "Received":
        """One receive; with `wait_s` it waits for so long, else for as long as it must."""
        types = RPCS["ReceiveMessage"]
        wait_s = options.pop("wait_s", 5)
        request = types.request_type(batch_size=options.pop("batch_size", 32))
        request.group.name, request.message_queue.topic.name = group, topic
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
        expression = options.pop("expression", "*")
        request.filter_expression.type = options.pop("filter_type", 1)
        request.filter_expression.expression = expression
        if options.pop("auto_renew", False):
            request.auto_renew = True
        else:
            request.invisible_duration.seconds = invisible_s
        request.attempt_id = options.pop("attempt_id", "")
        timeout = options.pop("timeout", wait_s + 10)
        stub = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage", types.request_type.SerializeToString, types.answer_type.FromString
        )
        frames = [each async for each in stub(request, metadata=self.metadata, timeout=timeout)]
        kinds = [each.WhichOneof("content") for each in frames]
        if len(frames) > 1:
            assert kinds == ["status", *["message"] * (len(frames) - 2), "delivery_timestamp"], kinds
        return Received(CODES[frames[0].status.code], [each.message for each in frames[1:-1]])

    async def ack(self, group: str, topic: str, *messages: Any) -> Any:
        answer = await self.call(
            "AckMessage", **_of(group, topic), entries=[_entry(each) for each in messages]
        )
        return [CODES[each.status.code] for each in answer.entries]

    async def change(self, group: str, topic: str, message: Any, seconds: int, **more: Any) -> Any:
        """Change the invisible time; returns the answer."""
        return await self.call(
            "ChangeInvisibleDuration",
            **_of(group, topic),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
            invisible_duration={"seconds": seconds},
            **_lite(message),
            **more,
        )

    async def sync(self, action: str, group: str, topic: str, *lite_topics: str, **more: Any) -> str:
        """Change the lite topics that it reads; returns the code of the answer."""
        number = LITE_ACTIONS[action]
        return await self.code(
            "SyncLiteSubscription", action=number, **_of(group, topic), lite_topic_set=lite_topics, **more
        )

    # The stream

    async def open_stream(self, settings: Any) -> Any:
        """Send settings and return the answer."""
        self.stream = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry", TelemetryCommand.SerializeToString, TelemetryCommand.FromString
        )(metadata=self.metadata)
        await self.stream.write(TelemetryCommand(settings=settings))
        return (await self.stream.read()).settings

    async def answer(self, nonce: str, *, stack: str) -> None:
        command = TelemetryCommand()
        command.thread_stack_trace.nonce, command.thread_stack_trace.thread_stack_trace = nonce, stack
        await self.stream.write(command)

    async def publish(self, *topics: str) -> Any:
        settings = Settings(client_type=CLIENT_TYPES["PRODUCER"])
        settings.publishing.topics.extend([Resource(name=topic) for topic in topics])
        if not topics:
            settings.publishing.SetInParent()
        return await self.open_stream(settings)

    async def subscribe(
        self, group: str, *topics: str, kind: str = "SIMPLE_CONSUMER", expression: str = "*"
    ) -> Any:
        settings = Settings(client_type=CLIENT_TYPES[kind])
        settings.subscription.group.name = group
        for topic in topics:
            entry = settings.subscription.subscriptions.add()
            entry.topic.name = topic
            entry.expression.type, entry.expression.expression = 1, expression
        return await self.open_stream(settings)
