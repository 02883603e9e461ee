"""The meaning of a declared queue's arguments."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyromq.client.declaring import TopicType


class QueueTraits:
    def __init__(self, arguments: dict[str, Any] | None = None) -> None:
        given = arguments or {}
        self.max_priority: int | None = given.get("x-max-priority")
        self.is_ordered = bool(given.get("x-ordered"))
        """Tasks with the same header `order_key` run one after the other."""
        self.ttl_ms: int | None = given.get("x-message-ttl")

    @property
    def topic_type(self) -> "TopicType":
        return "PRIORITY" if self.max_priority else "FIFO" if self.is_ordered else "NORMAL"
