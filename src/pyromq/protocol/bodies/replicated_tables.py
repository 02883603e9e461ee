"""Tables that a master of ours hands to its replicas; those that have not changed are absent."""

from pyromq.protocol.bodies.access import AccessTable
from pyromq.protocol.bodies.body import Body, Int64
from pyromq.protocol.bodies.groups import SubscriptionGroupWrapper
from pyromq.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from pyromq.protocol.bodies.topic_tables import TopicConfigSerializeWrapper


class DeletedTopic(Body):
    """A topic whose messages before a log offset are deleted."""

    log_offset: Int64
    time_ms: Int64
    topic: str


class ReplicatedTables(Body):
    """`topics` are all topics, or only new and changed ones if `has_all_topics` is false.

    `resets` come with the offsets: where operators want groups to go on. `is_promised`: an operator waits
    until replicas have the offsets on disk.
    """

    access: AccessTable | None = None
    consumer_offsets: ConsumerOffsetSerializeWrapper | None = None
    delay_offsets: DelayOffsetSerializeWrapper | None = None
    deleted_topics: list[DeletedTopic] | None = None
    groups: SubscriptionGroupWrapper | None = None
    has_all_topics: bool = False
    is_promised: bool = False
    resets: ConsumerOffsetSerializeWrapper | None = None
    topics: TopicConfigSerializeWrapper | None = None
