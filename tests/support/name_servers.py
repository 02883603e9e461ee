"""A name server in this process, brokers that register with it, and clients that watch."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pyromq.clock import Clock
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol import registration
from pyromq.protocol.body import DataVersion
from pyromq.protocol.catalogue import CLIENT, Answer, Request
from pyromq.protocol.codes import CURRENT_VERSION
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.brokers import RegisterBroker
from pyromq.protocol.requests.pushes import NotifyRoutesChanged
from pyromq.protocol.requests.routes import GetRoute, GetRouteAnswer
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigAndMappingSerializeWrapper
from pyromq.remoting.admission import Admission
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.tls import TlsOptions

A = TypeVar("A", bound=Answer)

TIMEOUT_S = 60.0


def name_server(
    directory: Path, *, clock: Clock | None = None, admission: Admission | None = None, **settings: Any
) -> NameServer:
    """On a free port of the loopback interface, with its files in the directory."""
    values: dict[str, Any] = {
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "kv_config_path": directory / "kvConfig.json",
        "config_store_path": directory / "namesrv.properties",
        "shutdown_wait_seconds": 5,
    }
    return NameServer(NameServerSettings(**{**values, **settings}), clock=clock, admission=admission)


def registration_body(
    topics: Iterable[str] | Mapping[str, TopicConfig] = ("t",),
    *,
    counter: int = 1,
    filter_servers: Iterable[str] = (),
) -> registration.RegisterBrokerBody:
    if not isinstance(topics, Mapping):
        topics = {
            name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in topics
        }
    return registration.RegisterBrokerBody(
        filter_server_list=list(filter_servers),
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=counter, timestamp=1), topic_config_table=dict(topics)
        ),
    )


def register_broker(
    name: str = "a",
    id_: int = 0,
    topics: Iterable[str] | Mapping[str, TopicConfig] = ("t",),
    *,
    counter: int = 1,
    compressed: bool = False,
    version: int = CURRENT_VERSION,
    **fields: Any,
) -> RegisterBroker:
    content = registration_body(topics, counter=counter)
    encode = registration.encode_compressed if compressed else registration.encode_plain
    body = encode(content, version)
    values: dict[str, Any] = {
        "broker_name": name,
        "broker_addr": f"{name}{id_}:10911",
        "cluster_name": "c",
        "ha_server_addr": f"{name}{id_}:10912",
        "broker_id": id_,
        "compressed": compressed,
        "body_crc32": registration.body_crc32(body),
        "body": body,
    }
    return RegisterBroker(**{**values, **fields})


class Peer:
    """A broker or client of one name server, over one connection; collects what it is told."""

    def __init__(
        self, server: NameServer, form: int = HeaderForm.JSON, tls: TlsOptions | None = None
    ) -> None:
        host, port = server.address
        self.address = f"{host}:{port}"
        self.told: asyncio.Queue[list[str]] = asyncio.Queue()
        self._dialer = Dialer(ConnectionTerms(form=form), routes=Routes(self, serving=CLIENT), tls=tls)

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._dialer.close()

    async def call(self, request: Request[A]) -> A:
        return await self._dialer.call(self.address, request, TIMEOUT_S)

    async def send_oneway(self, request: Request[Any]) -> None:
        await self._dialer.send_oneway(self.address, request)

    async def watch(self, topic: str) -> GetRouteAnswer:
        return await self.call(GetRoute(topic=topic, watch=True))

    async def wait_told(self) -> list[str]:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.told.get()

    @handles(NotifyRoutesChanged)
    def _routes_changed(self, request: NotifyRoutesChanged, caller: Caller) -> None:
        self.told.put_nowait(request.body)
