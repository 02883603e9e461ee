"""Connected clients: the members of consumer and producer groups, and what consumers report."""

import msgspec

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.cluster.routes import route_addresses
from pyromq.errors import Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import retry_topic
from pyromq.protocol.requests.inspection import (
    ConsumerRunningInfo,
    GetConsumerRunningInfo,
    GetConsumerStatus,
)
from pyromq.protocol.requests.membership import (
    ClientConnection,
    ConsumerConnection,
    ConsumeType,
    GetAllProducers,
    GetConsumerConnections,
    GetProducerConnections,
    ProducerConnection,
    ProducerInfo,
    SubscriptionData,
)

_PASSED_ON_TIMEOUT_S = 15.0
_SETTLED_AFTER_MS = 120_000
_STALLED_AFTER_MS = 60_000


async def brokers_of_group(cluster: Cluster, group: str) -> list[str]:
    """The addresses of the brokers that know a group: those of its retry topic, or else all masters."""
    try:
        found = list(route_addresses(await cluster.route(retry_topic(group))).values())
    except NotFound:
        found = []
    return found or [member.address for member in await cluster.masters()]


async def consumers(cluster: Cluster, group: str, address: str | None = None) -> ConsumerConnection:
    """The members of a consumer group, according to one broker or all of them."""
    addresses = [address] if address is not None else await brokers_of_group(cluster, group)
    whole: ConsumerConnection | None = None
    members: dict[str | None, ClientConnection] = {}
    for each in addresses:
        request = GetConsumerConnections(consumer_group=group)
        answer = await cluster.ask_unless(ResponseCode.CONSUMER_NOT_ONLINE, each, request)
        if answer is not None:
            found = answer.body
            members |= {member.client_id: member for member in found.connection_set}
            if whole is None:
                whole = found
            else:
                whole.subscription_table |= found.subscription_table
    if whole is None:
        raise NotFound(
            f"no member of group {group} is online;"
            " `mqadmin consumerProgress` lists all groups with the number of their members"
        )
    whole.connection_set = [members[client_id] for client_id in sorted(members, key=str)]
    return whole


async def positions(
    cluster: Cluster, topic: str, group: str, client_id: str | None = None
) -> dict[str, dict[MessageQueue, int]]:
    """The offsets that each member of a group, or one of them, reports for the queues of a topic."""
    found: dict[str, dict[MessageQueue, int]] = {}
    for address in route_addresses(await cluster.route(topic)).values():
        request = GetConsumerStatus(topic=topic, group=group, client_addr=client_id)
        # java: a broker answers SYSTEM_ERROR for a group without members
        answer = await cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, request, _PASSED_ON_TIMEOUT_S)
        for member, offsets in {} if answer is None else answer.body.consumer_table.items():
            found.setdefault(member, {}).update(offsets)
    if not found:
        who = f"member {client_id}" if client_id else "no member"
        raise NotFound(
            f"{who} of group {group} {'did not answer' if client_id else 'answered'};"
            f" `mqadmin consumerConnection -g {group}` lists the members"
        )
    return found


async def producers(cluster: Cluster, group: str, topic: str) -> ProducerConnection:
    """The members of a producer group, according to the brokers of a topic."""
    members: dict[str | None, ClientConnection] = {}
    for address in route_addresses(await cluster.route(topic)).values():
        request = GetProducerConnections(producer_group=group)
        # java: a broker answers SYSTEM_ERROR for a group without producers
        answer = await cluster.ask_unless(ResponseCode.SYSTEM_ERROR, address, request)
        if answer is not None:
            members |= {member.client_id: member for member in answer.body.connection_set}
    if not members:
        raise NotFound(
            f"no producer of group {group} is connected to the brokers of topic {topic};"
            " `mqadmin producer -b ADDRESS` lists all producers of a broker"
        )
    return ProducerConnection(connection_set=[members[client_id] for client_id in sorted(members, key=str)])


async def all_producers(cluster: Cluster, address: str) -> dict[str, list[ProducerInfo]]:
    return (await cluster.ask(address, GetAllProducers())).body.data


async def running_info(
    cluster: Cluster, group: str, client_id: str, *, stacks: bool = False, address: str | None = None
) -> ConsumerRunningInfo:
    """The report of a consumer about itself, asked for through a broker that it is connected to."""
    addresses = [address] if address is not None else await brokers_of_group(cluster, group)
    request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=stacks)
    refusal: Refused | None = None
    for each in addresses:
        try:
            return (await cluster.ask(each, request, _PASSED_ON_TIMEOUT_S)).body
        except Refused as problem:
            refusal = problem
    assert refusal is not None
    raise NotFound(
        f"{refusal.remark or refusal}; `mqadmin consumerConnection -g {group}` lists the members of the group"
    )


class ConnectedMember(msgspec.Struct, frozen=True, rename="camel"):
    """One member of a consumer group; `running` is its report about itself, None if it did not answer."""

    client_id: str
    version: int
    running: ConsumerRunningInfo | None


async def status(
    cluster: Cluster, group: str, *, stacks: bool = False, address: str | None = None
) -> list[ConnectedMember]:
    """Every member of a group with its report about itself."""
    found = (await consumers(cluster, group, address)).connection_set
    told = await cluster.known(
        running_info(cluster, group, member.client_id or "", stacks=stacks, address=address)
        for member in found
    )
    return [
        ConnectedMember(member.client_id or "", member.version, running)
        for member, running in zip(found, told, strict=True)
    ]


# Checking the reports


def is_push(running: ConsumerRunningInfo) -> bool:
    return running.properties.get("PROP_CONSUME_TYPE") == ConsumeType.CONSUME_PASSIVELY


def subscribe_alike(members: list[ConnectedMember], now_ms: int) -> bool:
    """Whether all members have the same subscriptions; members that have just started may differ."""
    told = [member.running for member in members if member.running is not None]
    if not told or not is_push(told[0]):
        return True
    started = told[0].properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    if started.isdigit() and now_ms - int(started) <= _SETTLED_AFTER_MS:
        return True
    wanted = [sorted(map(_wanted, running.subscription_set)) for running in told]
    return all(each == wanted[0] for each in wanted)


def _wanted(subscription: SubscriptionData) -> tuple[str, str]:
    return subscription.topic, subscription.sub_string or ""


def complaints(member: ConnectedMember, now_ms: int) -> list[str]:
    """Problems with the queues of one member: not locked, not unlocked, or stuck."""
    if member.running is None:
        return [f"{member.client_id} did not answer"]
    found: list[str] = []
    if not is_push(member.running):
        return found
    is_orderly = member.running.properties.get("PROP_CONSUMEORDERLY") == "true"
    for queue, held in sorted(member.running.mq_table.items()):
        if is_orderly and not held.locked:
            waited_ms = now_ms - held.last_lock_timestamp
            found.append(f"{member.client_id} {queue} can't lock for a while, {waited_ms}ms")
        elif is_orderly and held.droped and held.try_unlock_times > 0:
            found.append(f"{member.client_id} {queue} unlock {held.try_unlock_times} times, still failed")
        elif not is_orderly and held.cached_msg_count > 0:
            waited_ms = now_ms - held.last_consume_timestamp
            if waited_ms > _STALLED_AFTER_MS:
                found.append(
                    f"{member.client_id} {queue} can't consume for a while, maybe blocked, {waited_ms}ms"
                )
    return found
