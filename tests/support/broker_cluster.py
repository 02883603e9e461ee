"""A whole broker over real sockets, and clients that speak to it in either header form."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings, vip_port
from pyromq.clock import Clock
from pyromq.cluster.signing import signers
from pyromq.errors import Refused
from pyromq.filesystem import Files
from pyromq.filtering.tags import parse_tags
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import CLIENT, Answer, BodyAnswer, Request
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.inspection import (
    ConsumeMessageDirectly,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerRunningInfo,
)
from pyromq.protocol.requests.membership import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SendHeartbeat,
    SendHeartbeatAnswer,
    SubscriptionData,
)
from pyromq.protocol.requests.pulling import PullMessage, PullMessageAnswer
from pyromq.protocol.requests.pushes import (
    CheckTransactionState,
    GetConsumerStatusBody,
    GetConsumerStatusFromClient,
    NotifyConsumerIdsChanged,
    PushReply,
    ResetConsumerOffset,
)
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.addresses import format_address
from pyromq.remoting.admission import Admission
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials
from pyromq.store.settings import StoreSettings
from pyromq.testing.held_ports import held_port

A = TypeVar("A", bound=Answer)

TIMEOUT_S = 60.0
TOPIC, GROUP, PRODUCERS = "Orders", "shop", "tills"
BROKER_NAME, CLUSTER = "broker-a", "TestCluster"
BROKER_PORTS = (0, -2, 1)
"""The main one, the fast one and the one for replicas, as `held_port` wants them."""
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Bits of a pull's system flag."""


def configuration(
    root: Path, *, store: Mapping[str, Any] | None = None, **settings: Any
) -> BrokerConfiguration:
    """Small files, ports of the system's choice. `settings` and `store` by their names in Python.

    A busy machine can hold up the first append to a new file for longer than fast failure lets the sends
    behind it wait; so that is only on where it is what a test is about.
    """
    chosen: dict[str, Any] = {
        "broker_name": BROKER_NAME,
        "broker_cluster_name": CLUSTER,
        "broker_ip1": "127.0.0.1",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "shutdown_wait_seconds": 5,
        "sql_filters": True,
        "fast_failure": False,
        "log_dir": None,
    }
    stored: dict[str, Any] = {
        "root": root,
        "log_segment_bytes": 1 << 20,
        "queue_file_bytes": 20_000,
        "index_slots": 1000,
        "index_units": 4000,
        "disk_warning_percent": 100,
        "disk_clean_forcibly_percent": 100,
    }
    return BrokerConfiguration(
        BrokerSettings(**chosen | settings), StoreSettings(**stored | dict(store or {}))
    )


@asynccontextmanager
async def running_broker(
    root: Path,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    admission: Admission | None = None,
    store: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Broker]:
    """The same root again is a restart."""
    chosen = configuration(root, store=store, **settings)
    broker = Broker(chosen, clock=clock, files=files, admission=admission)
    async with broker:
        yield broker


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought."""

    answer: PullMessageAnswer
    messages: list[StoredMessage]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class BrokerClient:
    """A producer and consumer on one connection; what the broker asks of it is answered and remembered."""

    def __init__(
        self,
        address: tuple[str, int],
        form: int = HeaderForm.JSON,
        client_id: str = "c1",
        *,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
    ) -> None:
        self.address = format_address(*address)
        self.vip_address = format_address(address[0], vip_port(address[1]))
        self.client_id = client_id
        self.pushed: asyncio.Queue[Request[Any]] = asyncio.Queue()
        self.refuses_with: Refused | None = None
        """How it answers what the broker asks, if not as wished."""
        self._dialer = Dialer(
            ConnectionTerms(form=form),
            routes=Routes(self, serving=CLIENT),
            new_signer=signers(credentials),
            tls=tls,
        )

    async def __aenter__(self) -> "BrokerClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._dialer.close()

    # Asking

    async def connection(self) -> Connection:
        return await self._dialer.connection(self.address)

    async def call(self, request: Request[A], timeout_s: float = TIMEOUT_S) -> A:
        return await self._dialer.call(self.address, request, timeout_s)

    async def call_vip(self, request: Request[A]) -> A:
        return await self._dialer.call(self.vip_address, request, TIMEOUT_S)

    async def send_oneway(self, request: Request[Any]) -> None:
        await self._dialer.send_oneway(self.address, request)

    async def refusal(self, request: Request[Any]) -> Refused:
        try:
            answer = await self.call(request)
        except Refused as refused:
            return refused
        raise AssertionError(f"expected a refusal, got {answer!r}")

    async def send(
        self,
        body: bytes = b"hello",
        topic: str = TOPIC,
        queue_id: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> SendMessageAnswer:
        return await self.call(message(body, topic, queue_id, properties=properties, **fields))

    async def send_batch(self, *bodies: bytes, topic: str = TOPIC, queue_id: int = 0) -> SendMessageAnswer:
        packed = encode_batch(BatchEntry(body) for body in bodies)
        sent = message(packed, topic, queue_id, batch=True)
        fields = {name: getattr(sent, name) for name in SendMessageV2.__struct_fields__}
        return await self.call(SendMessageBatch(**fields))

    async def pull(
        self, offset: int = 0, topic: str = TOPIC, queue_id: int = 0, *, group: str = GROUP, **fields: Any
    ) -> Pulled:
        answer = await self.call(pull(offset, topic, queue_id, group=group, **fields))
        return Pulled(answer, decode_records(answer.body, check_crc=True))

    async def create_topic(self, topic: str = TOPIC, queues: int = 4, **fields: Any) -> None:
        await self.call(topic_creation(topic, queues, **fields))

    async def heartbeat(
        self,
        *groups: ConsumerData,
        producers: tuple[str, ...] = (),
        fingerprint: int = 0,
        light: bool = False,
    ) -> SendHeartbeatAnswer:
        beat = HeartbeatData(
            client_id=self.client_id,
            consumer_data_set=list(groups),
            producer_data_set=[ProducerData(group_name=name) for name in producers],
            heartbeat_fingerprint=fingerprint,
            without_sub=light,
        )
        return await self.call(SendHeartbeat(body=beat))

    # Being asked

    async def next_push(self) -> Request[Any]:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.pushed.get()

    def _asked(self, request: Request[Any]) -> None:
        self.pushed.put_nowait(request)
        if self.refuses_with is not None:
            raise self.refuses_with

    @handles(NotifyConsumerIdsChanged)
    def _members_changed(self, request: NotifyConsumerIdsChanged, caller: Caller) -> None:
        self._asked(request)

    @handles(CheckTransactionState)
    def _check(self, request: CheckTransactionState, caller: Caller) -> None:
        self._asked(request)

    @handles(ResetConsumerOffset)
    def _reset(self, request: ResetConsumerOffset, caller: Caller) -> None:
        self._asked(request)

    @handles(PushReply)
    def _reply(self, request: PushReply, caller: Caller) -> None:
        self._asked(request)

    @handles(GetConsumerStatusFromClient)
    def _status(
        self, request: GetConsumerStatusFromClient, caller: Caller
    ) -> BodyAnswer[GetConsumerStatusBody]:
        self._asked(request)
        queue = MessageQueue(request.topic, BROKER_NAME, 0)
        return BodyAnswer(body=GetConsumerStatusBody(message_queue_table={queue: 7}))

    @handles(GetConsumerRunningInfo)
    def _running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        self._asked(request)
        return BodyAnswer(body=ConsumerRunningInfo(properties={"PROP_CLIENT_VERSION": self.client_id}))

    @handles(ConsumeMessageDirectly)
    def _consume(
        self, request: ConsumeMessageDirectly, caller: Caller
    ) -> BodyAnswer[ConsumeMessageDirectlyResult]:
        self._asked(request)
        return BodyAnswer(body=ConsumeMessageDirectlyResult(remark=self.client_id))


def message(
    body: bytes = b"hello",
    topic: str = TOPIC,
    queue_id: int = 0,
    *,
    properties: Mapping[str, str] | None = None,
    **fields: Any,
) -> SendMessageV2:
    values: dict[str, Any] = {
        "producer_group": PRODUCERS,
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": time.time_ns() // 1_000_000,
        "flag": 0,
        "properties": encode_properties(properties) if properties else None,
        "body": body,
    }
    return SendMessageV2(**values | fields)


def pull(
    offset: int = 0,
    topic: str = TOPIC,
    queue_id: int = 0,
    *,
    group: str = GROUP,
    subscription: str | None = "*",
    hold_ms: int = 0,
    commit: int | None = None,
    **fields: Any,
) -> PullMessage:
    """With a subscription of its own, as consumers without heartbeats pull; `hold_ms` lets it wait."""
    values: dict[str, Any] = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION | (SUSPEND if hold_ms else 0) | (COMMIT if commit is not None else 0),
        "commit_offset": commit or 0,
        "suspend_timeout_millis": hold_ms,
        "subscription": subscription,
        "sub_version": 0,
    }
    return PullMessage(**values | fields)


def topic_creation(topic: str = TOPIC, queues: int = 4, **fields: Any) -> CreateOrUpdateTopic:
    values: dict[str, Any] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": queues,
        "write_queue_nums": queues,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
    }
    return CreateOrUpdateTopic(**values | fields)


def consumer(
    group: str = GROUP,
    topic: str = TOPIC,
    expression: str = "*",
    *,
    sql: bool = False,
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
) -> ConsumerData:
    """What a heartbeat says of one group with one subscription."""
    tags = parse_tags("*" if sql else expression)
    subscription = SubscriptionData(
        topic=topic,
        sub_string=expression,
        expression_type="SQL92" if sql else "TAG",
        tags_set=set(tags.tags),
        code_set=set(tags.codes),
        sub_version=version,
    )
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[subscription],
    )


class Bench:
    """One broker that can be restarted, and its clients."""

    def __init__(self, root: Path, form: int, clock: Clock | None = None, **settings: Any) -> None:
        self.root = root
        self.form = form
        self._clock = clock
        self._settings = settings
        self._broker: Broker | None = None
        self._clients = AsyncExitStack()
        self._ports = ExitStack()
        self.client: BrokerClient

    @property
    def broker(self) -> Broker:
        assert self._broker is not None
        return self._broker

    async def new_client(self, client_id: str = "c1", form: int | None = None) -> BrokerClient:
        client = BrokerClient(self.broker.address, self.form if form is None else form, client_id)
        return await self._clients.enter_async_context(client)

    async def restart(self, **changes: Any) -> None:
        """On the same ports, with the same files; clients stay, and find it again."""
        port = self.broker.address[1]
        await self.broker.stop()
        await self._start({"listen_port": port, **changes})

    async def _start(self, changes: Mapping[str, Any]) -> None:
        self._settings |= changes
        broker = Broker(configuration(self.root, **self._settings), clock=self._clock)
        await broker.start()
        self._broker = broker

    async def __aenter__(self) -> "Bench":
        port = self._ports.enter_context(held_port(BROKER_PORTS))
        await self._start({"listen_port": port} | self._settings)
        self.client = await self.new_client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.aclose()
        await self.broker.stop()
        self._ports.close()
