"""Erasing messages by key: asking for it, and how far each broker is."""

from collections.abc import Iterable

import msgspec

from pyromq.admin.cluster import Cluster
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import KEY_SEPARATOR
from pyromq.protocol.requests.topics import EraseMessages, GetErasures


class ErasedKey(msgspec.Struct, frozen=True, rename="camel"):
    """How far a broker is with a key."""

    broker: str
    """Its address."""
    key: str
    log_offset: int
    """Messages before it go."""
    asked_ms: int
    in_log: bool
    """Whether they are gone from its log."""
    in_tier: bool
    """Whether they are gone from its tier; true without one."""
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        return self.in_log and self.in_tier


async def erase(cluster: Cluster, addresses: Iterable[str], topic: str, keys: Iterable[str]) -> list[str]:
    """Have all messages with these keys erased; returns the masters that have the topic."""
    request = EraseMessages(topic=topic, keys=KEY_SEPARATOR.join(keys))
    asked = []
    for address in addresses:
        try:
            await cluster.change(address, request)
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        else:
            asked.append(address)
    return asked


async def progress(cluster: Cluster, address: str, topic: str) -> list[ErasedKey]:
    """How far a broker is with the keys that it was asked to erase."""
    answer = await cluster.ask(address, GetErasures(topic=topic))
    return [
        ErasedKey(
            broker=address,
            key=each.key,
            log_offset=each.log_offset,
            asked_ms=each.time_ms,
            in_log=each.is_done_here,
            in_tier=each.is_done_in_tier,
            problem=each.problem,
        )
        for each in answer.body.erasures
    ]
