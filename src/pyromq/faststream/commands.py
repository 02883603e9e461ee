"""Messages that FastStream asks a producer to send."""

from typing import Any

from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand, Response

from pyromq.client.values import ReceivedMessage


class RocketResponse(Response):
    """A handler's result with more than a body: headers, a tag, keys, …"""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.fields = checked_fields(fields)

    def as_publish_command(self) -> "RocketCommand":
        return RocketCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            fields=self.fields,
            _publish_type=PublishType.PUBLISH,
        )


class RocketCommand(PublishCommand):
    """`fields`: those of `MESSAGE_FIELDS`. `to`: the request that it answers. `base`: as in every command."""

    def __init__(
        self,
        body: Any,
        *,
        timeout_s: float = 0.0,
        fields: dict[str, Any] | None = None,
        to: ReceivedMessage | None = None,
        **base: Any,
    ) -> None:
        super().__init__(body, **base)
        self.timeout_s = timeout_s
        self.fields = fields or {}
        self.to = to

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> "RocketCommand":
        if isinstance(cmd, RocketCommand):
            return cmd
        return cls(
            cmd.body,
            destination=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def __repr__(self) -> str:
        return f"<RocketCommand {self.publish_type.name} {self.destination} body={self.body!r}>"


MESSAGE_FIELDS = ("tag", "keys", "sharding_key", "delay_s", "deliver_at", "priority")
"""The fields of a message besides body and headers."""


def checked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    for name in fields:
        if name not in MESSAGE_FIELDS:
            raise TypeError(f"unexpected argument {name!r}: there are {', '.join(MESSAGE_FIELDS)}")
    return {name: value for name, value in fields.items() if value is not None}
