"""A pulling service with everything around it, for tests of who may pull, what is found and what waits."""

import asyncio
from typing import Any

import msgspec
from tests.support.broker_parts import BrokerParts, FakeChannel, caller_on

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.held_pulls import HeldPulls
from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.flow.reading import Reading
from pyromq.broker.services.pulling import Pulling
from pyromq.broker.tables.clients import Client
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.record import Host, decode_records
from pyromq.protocol.requests.membership import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from pyromq.protocol.requests.pulling import PullMessage

BORN = Host.of("10.1.1.1", 4000).pack()
GROUP, TOPIC = "billing", "Orders"


class Pulls:
    """A pulling service with everything around it."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.slices = parts.context.slices
        self.held_pulls = HeldPulls(self.slices)
        self.read_grants = ReadGrants(parts.live, parts.tables)
        self.statistics = parts.statistics
        self.filters = parts.tables.filters
        self.connection = FakeChannel()
        self.service = Pulling(
            parts.context,
            Reading(parts.live, parts.store, parts.tables, self.slices),
            self.held_pulls,
            self.read_grants,
            parts.quotas,
        )
        parts.add_topic(TOPIC)

    def put(self, body: str, queue_id: int = 0, **properties: str) -> None:
        encoded = props.encode_properties(properties).encode()
        self._append(Draft(TOPIC, queue_id, body.encode(), encoded, 1, BORN))

    def put_raw(self, body: bytes, sys_flag: int = 0) -> None:
        self._append(Draft(TOPIC, 0, body, b"", 1, BORN, sys_flag=sys_flag))

    def _append(self, draft: Draft) -> None:
        assert self.parts.appending.append(draft).is_ok
        self.dispatch()

    def dispatch(self) -> None:
        while advances := self.parts.store.dispatch():
            for advance in advances:
                self.held_pulls.advanced(advance)

    def subscribe(
        self, expression: str = "*", *, version: int = 1, kind: str = "TAG", model: str = "CLUSTERING"
    ) -> None:
        wanted = SubscriptionData(
            topic=TOPIC, sub_string=expression, sub_version=version, expression_type=kind
        )
        if kind == "TAG" and expression != "*":
            tags = {tag.strip() for tag in expression.split("||")}
            wanted.tags_set, wanted.code_set = tags, {tag_code(tag) for tag in tags}
        data = ConsumerData(
            group_name=GROUP,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel(model),
            subscription_data_set=[wanted],
        )
        client = Client(self.connection, "c-1", 0, 401, 0)
        self.parts.consumers.register(client, data)
        self.filters.register(GROUP, [wanted])

    def pull(self, offset: int = 0, **changes: Any) -> "RawAnswer | asyncio.Future[RawAnswer]":
        return self.service.pull(request(offset, **changes), caller_on(self.connection))


def request(offset: int = 0, **changes: Any) -> PullMessage:
    plain = PullMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=1,
    )
    return msgspec.structs.replace(plain, **changes)


def bodies(answer: RawAnswer) -> list[str]:
    return [message.body.decode() for message in decode_records(answer.body)]
