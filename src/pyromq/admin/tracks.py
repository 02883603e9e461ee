"""Finds out which groups have consumed a message."""

from enum import StrEnum

import msgspec

from pyromq.admin import topics
from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.connections import consumers
from pyromq.admin.failures import NotFound
from pyromq.admin.offsets import lag
from pyromq.errors import PyroError
from pyromq.protocol.properties import TAGS
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.membership import ConsumerConnection, ConsumeType, MessageModel


class TrackType(StrEnum):
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a message in one group."""

    consumer_group: str
    track_type: TrackType
    remark: str | None = None


async def of_message(cluster: Cluster, message: StoredMessage) -> list[MessageTrack]:
    """The state of a message in each group that reads its topic."""
    return [
        await _in_group(cluster, message, group) for group in await topics.readers(cluster, message.topic)
    ]


async def _in_group(cluster: Cluster, message: StoredMessage, group: str) -> MessageTrack:
    try:
        members = await consumers(cluster, group)
        if members.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if members.message_model is MessageModel.BROADCASTING:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        if not await _is_passed(cluster, message, group):
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
    except NotFound as absence:
        return MessageTrack(group, TrackType.NOT_ONLINE, str(absence))
    except PyroError as problem:
        return MessageTrack(group, TrackType.UNKNOWN, str(problem))
    is_wanted = _is_wanted(message, members)
    return MessageTrack(group, TrackType.CONSUMED if is_wanted else TrackType.CONSUMED_BUT_FILTERED)


def _is_wanted(message: StoredMessage, members: ConsumerConnection) -> bool:
    subscription = members.subscription_table.get(message.topic)
    tags = set() if subscription is None else subscription.tags_set
    return not tags or "*" in tags or message.get(TAGS) in tags


async def _is_passed(cluster: Cluster, message: StoredMessage, group: str) -> bool:
    """Whether the committed offset of a group is past the message."""
    holders = {
        member.broker_name
        for member in members_of(await cluster.info())
        if member.address == str(message.store_host)
    }
    return any(
        queue.broker_name in holders
        and queue.queue_id == message.queue_id
        and place.consumer_offset > message.queue_offset
        for queue, place in (await lag(cluster, group, message.topic)).offset_table.items()
    )
