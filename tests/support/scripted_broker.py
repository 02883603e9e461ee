"""A name server and a broker in one, over real sockets, that answers exactly as the test says."""

import asyncio
from collections import deque
from typing import Any

from pyromq import aio
from pyromq.client.values import Message, SendResult
from pyromq.errors import Refused
from pyromq.protocol.catalogue import BROKER, NAMESERVER, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import Host
from pyromq.protocol.requests.membership import SendHeartbeat, SendHeartbeatAnswer, UnregisterClient
from pyromq.protocol.requests.routes import BrokerData, GetRoute, GetRouteAnswer, QueueData, TopicRouteData
from pyromq.protocol.requests.sending import (
    RecallMessage,
    RecallMessageAnswer,
    SendMessageAnswer,
    SendMessageBatch,
    SendMessageV2,
)
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server
from pyromq.remoting.tls import TlsServer


class ScriptedBroker:
    """`answers` are given to sends and recalls in turn: codes that refuse, or answers; then all succeed."""

    def __init__(
        self, *topics: str, queues: int = 2, watches: bool = False, tls: TlsServer | None = None
    ) -> None:
        self.topics = list(topics)
        self.queues = queues
        self.watches = watches
        self.order_configuration: str | None = None
        self.other_brokers: dict[str, str] = {}
        """Further masters in every route: name → address."""
        self.answers: deque[int | SendMessageAnswer] = deque()
        self.sent: list[SendMessageV2] = []
        self.frames: list[Frame] = []
        self.route_questions: list[GetRoute] = []
        self.heartbeats: asyncio.Queue[SendHeartbeat] = asyncio.Queue()
        self.ended: asyncio.Queue[EndTransaction] = asyncio.Queue()
        self.goodbyes: asyncio.Queue[UnregisterClient] = asyncio.Queue()
        self.recalled: list[RecallMessage] = []
        self.clients: dict[str, Connection] = {}
        self.hold: asyncio.Event | None = None
        """While set and not yet happened, sends wait for it."""
        self.arrived: asyncio.Queue[SendMessageV2] = asyncio.Queue()
        self._server = Server(Routes(self, serving=BROKER | NAMESERVER), tls=tls)

    @property
    def address(self) -> str:
        return format_address(*self._server.address)

    @property
    def connections(self) -> list[Connection]:
        return list(self._server.connections)

    def push(self, request: Request[Any]) -> None:
        """Ask something of every client that sent a heartbeat."""
        for connection in self.clients.values():
            connection.send_oneway(request)

    async def __aenter__(self) -> "ScriptedBroker":
        await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        await self._server.stop(grace_s=0)

    @handles(GetRoute)
    def _route(self, request: GetRoute, caller: Caller) -> GetRouteAnswer:
        self.route_questions.append(request)
        self.frames.append(caller.frame)
        if request.topic not in self.topics:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for {request.topic}")
        brokers = {"scripted": self.address} | self.other_brokers
        route = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, cluster="c", broker_addrs={0: address})
                for name, address in brokers.items()
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=self.queues, write_queue_nums=self.queues)
                for name in brokers
            ],
            order_topic_conf=self.order_configuration,
        )
        return GetRouteAnswer(body=route, watch=True if self.watches and request.watch else None)

    @handles(SendMessageV2)
    async def _send(self, request: SendMessageV2, caller: Caller) -> SendMessageAnswer:
        return await self._store(request, caller)

    @handles(SendMessageBatch)
    async def _send_batch(self, request: SendMessageBatch, caller: Caller) -> SendMessageAnswer:
        return await self._store(request, caller)

    async def _store(self, request: SendMessageV2, caller: Caller) -> SendMessageAnswer:
        self.sent.append(request)
        self.frames.append(caller.frame)
        self.arrived.put_nowait(request)
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.popleft() if self.answers else ResponseCode.SUCCESS
        if isinstance(answer, SendMessageAnswer):
            return answer
        if answer not in (0, 10, 11, 12):
            raise Refused(answer, "as the script says")
        number = len(self.sent)
        return SendMessageAnswer(
            code=answer,
            msg_id=encode_offset_message_id(Host.of("127.0.0.1", 10911), 1000 + number),
            queue_id=request.queue_id,
            queue_offset=number,
            transaction_id=f"transaction-{number}",
            msg_region="DefaultRegion",
            trace_on=True,
        )

    @handles(SendHeartbeat)
    def _heartbeat(self, request: SendHeartbeat, caller: Caller) -> SendHeartbeatAnswer:
        assert isinstance(caller.channel, Connection)
        self.clients[request.body.client_id] = caller.channel
        self.heartbeats.put_nowait(request)
        return SendHeartbeatAnswer()

    @handles(UnregisterClient)
    def _goodbye(self, request: UnregisterClient, caller: Caller) -> None:
        self.goodbyes.put_nowait(request)

    @handles(EndTransaction)
    def _end(self, request: EndTransaction, caller: Caller) -> None:
        self.ended.put_nowait(request)

    @handles(RecallMessage)
    def _recall(self, request: RecallMessage, caller: Caller) -> RecallMessageAnswer:
        self.recalled.append(request)
        answer = self.answers.popleft() if self.answers else ResponseCode.SUCCESS
        if isinstance(answer, int) and answer != ResponseCode.SUCCESS:
            raise Refused(answer, "as the script says")
        return RecallMessageAnswer(msg_id="recalled")


def sends(producer: aio.Producer, count: int = 3) -> "list[asyncio.Task[SendResult]]":
    """Messages to the topic Orders, each on a task of its own."""
    return [asyncio.create_task(producer.send(Message("Orders", b"%d" % each))) for each in range(count)]
