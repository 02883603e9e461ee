"""Requests to a cluster: to the first name server that answers, or to brokers by address."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from pyromq.admin.failures import NoNameServer, NotFound, NotKept, PartlyFailed, nearest
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.name_servers import NameServers, as_listed, name_server_addresses
from pyromq.cluster.routes import first_address
from pyromq.cluster.signing import signers
from pyromq.errors import PyroError, Refused
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import REPLICA_REMARK, ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.routes import (
    ClusterInfo,
    GetAllTopics,
    GetClusterInfo,
    GetRoute,
    TopicRouteData,
)
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

A = TypeVar("A", bound=Answer)
T = TypeVar("T")

_AT_ONCE = 32


class BrokerMember(msgspec.Struct, frozen=True, rename="camel"):
    """One broker process: its cluster, the name it shares with its replicas, its id and its address."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Cluster:
    """`async with Cluster("127.0.0.1:9876") as cluster: await topics.names(cluster)`.

    `namesrv` is one address, several separated by semicolons, or a sequence of them. Requests are signed if
    there are `credentials`.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout_s: float = 5.0,
        credentials: Credentials | None = None,
        tls: TlsOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name_servers = name_server_addresses(namesrv if isinstance(namesrv, str) else ";".join(namesrv))
        """The addresses of the name servers, in the order given."""
        self._choice = NameServers(self.name_servers, as_listed)
        self.timeout_s = timeout_s
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._tls = tls
        self._credentials = credentials
        self._dialer: Dialer | None = None
        self.unanswered: dict[str, PyroError] = {}
        """The failures that `known` met, by their text."""

    @property
    def is_signing(self) -> bool:
        return self._credentials is not None

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    def copy(self) -> "Cluster":
        """The same cluster, with separate connections."""
        return Cluster(
            self.name_servers,
            timeout_s=self.timeout_s,
            credentials=self._credentials,
            tls=self._tls,
            clock=self.clock,
        )

    def __repr__(self) -> str:
        state = "closed" if self._dialer is None else repr(self._dialer)
        return f"<Cluster {';'.join(self.name_servers)} {state}>"

    async def __aenter__(self) -> Self:
        self._dialer = Dialer(
            ConnectionTerms(clock=self.clock),
            tls=self._tls,
            new_signer=signers(self._credentials, clock=self.clock),
            connect_timeout_s=min(3.0, self.timeout_s),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        dialer, self._dialer = self._dialer, None
        if dialer is not None:
            await dialer.close()

    def apart(self) -> Self:
        """The same connections with a separate table `unanswered`: for one reader of many."""
        other = copy(self)
        other.unanswered = {}
        return other

    # Requests

    async def ask(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        assert self._dialer is not None, "the cluster is used outside of its `async with`"
        return await self._dialer.call(address, request, self.timeout_s if timeout_s is None else timeout_s)

    async def change(self, address: str, request: Request[A]) -> A:
        """Ask a broker for a change that replicas do not refuse; `NotKept` if it is one, says its remark."""
        answer = await self.ask(address, request)
        if answer.remark == REPLICA_REMARK:  # Apache's brokers put another one even into a success
            raise NotKept(f"{address}: {answer.remark}")
        return answer

    async def ask_unless(
        self, refused: ResponseCode, address: str, request: Request[A], timeout_s: float | None = None
    ) -> A | None:
        """Ask the server at an address; None if it refuses with this code."""
        try:
            return await self.ask(address, request, timeout_s)
        except Refused as refusal:
            if refusal.code != refused:
                raise
            return None

    async def ask_each(
        self,
        addresses: Collection[str],
        request: Request[A],
        *,
        some_will_do: bool = False,
        is_change: bool = False,
    ) -> dict[str, A]:
        """Ask several servers the same at once; `PartlyFailed` if some fail, after all have answered.
        `is_change`: see `change`.

        For overviews, with `some_will_do`: if all fail; some that do are added to `unanswered`.
        """
        requests = dict.fromkeys(addresses, request)
        return await self.ask_all(requests, is_change=is_change, some_will_do=some_will_do)

    async def ask_all(
        self, requests: Mapping[str, Request[A]], *, is_change: bool = False, some_will_do: bool = False
    ) -> dict[str, A]:
        """The same with a request for each server."""
        answers = await asyncio.gather(
            *((self.change if is_change else self.ask)(*each) for each in requests.items()),
            return_exceptions=True,
        )
        done: dict[str, A] = {}
        failed: dict[str, PyroError] = {}
        for address, answer in zip(requests, answers, strict=True):
            if isinstance(answer, PyroError):
                failed[address] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                done[address] = answer
        if len(failed) == 1 == len(requests):
            raise next(iter(failed.values()))
        if failed and not (some_will_do and done):
            raise PartlyFailed(done, failed)
        self.unanswered |= {str(problem): problem for problem in failed.values()}
        return done

    async def ask_name_server(self, request: Request[A]) -> A:
        """Ask the name server that answered last, then the others; most refusals count as answers."""
        asked = self._choice.round()
        for address in asked:
            with asked:
                return await self.ask(address, request)
        if not asked.problems:
            raise NoNameServer("no name server given; set -n host:port or NAMESRV_ADDR")
        if isinstance(asked.problems[-1], Refused):
            raise asked.problems[-1]
        raise NoNameServer(
            f"no name server answers: {'; '.join(map(str, asked.problems))}; is one running there?"
            " Set another address with -n host:port or NAMESRV_ADDR"
        )

    async def ask_name_servers(self, request: Request[A]) -> dict[str, A]:
        """Ask every name server: they do not talk to each other."""
        if not self.name_servers:
            return {"": await self.ask_name_server(request)}
        return await self.ask_each(self.name_servers, request)

    async def known(self, questions: Iterable[Awaitable[T]]) -> list[T | None]:
        """The answers in order, None for each that failed: for overviews, which show what is available.
        A refusal counts as an answer; every other failure is added to `unanswered`."""
        places = asyncio.Semaphore(_AT_ONCE)

        async def ask(question: Awaitable[T]) -> T | None:
            async with places:
                try:
                    return await question
                except (NotFound, Refused):
                    return None
                except PyroError as problem:
                    self.unanswered.setdefault(str(problem), problem)
                    return None

        return await asyncio.gather(*map(ask, questions))

    # Look-ups

    async def info(self) -> ClusterInfo:
        return (await self.ask_name_server(GetClusterInfo())).body

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic; `NotFound` if it has none."""
        try:
            return (await self.ask_name_server(GetRoute(topic=topic))).body
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        known = (await self.ask_name_server(GetAllTopics())).body.topic_list
        hint = nearest(
            topic, known, "`mqadmin topicList` lists all topics, `mqadmin updateTopic` creates one"
        )
        raise NotFound(f"there is no topic {topic}; {hint}")

    async def members(self, cluster_name: str | None = None) -> list[BrokerMember]:
        """The brokers of a cluster, or of all clusters, each master before its replicas."""
        info = await self.info()
        if cluster_name is not None and cluster_name not in info.cluster_addr_table:
            raise NotFound(_no_cluster(cluster_name, info))
        return members_of(info, cluster_name)

    async def masters(self, cluster_name: str | None = None) -> list[BrokerMember]:
        """The masters of a cluster, or of all clusters; `NotFound` if there is none."""
        found = [member for member in await self.members(cluster_name) if member.is_master]
        if not found:
            where = f"cluster {cluster_name}" if cluster_name is not None else "the cluster"
            raise NotFound(f"{where} has no master now; `mqadmin clusterList` shows the brokers")
        return found

    async def broker_address(self, broker_name: str) -> str:
        """The address of a broker by name: its master or, without one, its first replica."""
        info = await self.info()
        data = info.broker_addr_table.get(broker_name)
        address = None if data is None else first_address(data)
        if address is None:
            hint = nearest(broker_name, info.broker_addr_table, "`mqadmin clusterList` shows the brokers")
            raise NotFound(f"there is no broker {broker_name}; {hint}")
        return address

    async def broker_name(self, address: str) -> str:
        for member in members_of(await self.info()):
            if member.address == address:
                return member.broker_name
        raise NotFound(f"no broker is registered at {address}; `mqadmin clusterList` shows the brokers")


def members_of(info: ClusterInfo, cluster_name: str | None = None) -> list[BrokerMember]:
    members: list[BrokerMember] = []
    for name in sorted(info.cluster_addr_table):
        if cluster_name is not None and name != cluster_name:
            continue
        for broker_name in sorted(set(info.cluster_addr_table[name])):
            data = info.broker_addr_table.get(broker_name)
            if data is not None:
                members += [
                    BrokerMember(name, broker_name, broker_id, data.broker_addrs[broker_id])
                    for broker_id in sorted(data.broker_addrs)
                ]
    return members


def _no_cluster(name: str, info: ClusterInfo) -> str:
    known = ", ".join(sorted(info.cluster_addr_table))
    return f"there is no cluster {name}; " + (f"known: {known}" if known else "no broker is registered yet")
