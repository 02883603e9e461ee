"""Declares topics and groups: on each master that lacks one it is created, elsewhere it stays as it is."""

import asyncio
import logging
from contextlib import suppress
from typing import Literal

import msgspec

from pyromq.client.session import Session
from pyromq.errors import CallTimeout, ConnectFailed, NoRoute, PyroError, Refused
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, GetGroupConfig, SubscriptionGroupConfig
from pyromq.protocol.requests.routes import GetClusterInfo
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, TopicConfig

_log = logging.getLogger(__name__)

_LOOK_S = 0.02

TopicType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE", "UNSPECIFIED"]


async def declare_topic(session: Session, topic: str, queues: int, message_type: TopicType) -> bool:
    """Returns when clients can use it: True if it was created. `topic` has the name that brokers know."""
    timeout_s = session.settings.call_timeout_s
    try:
        await session.routes.refresh(topic)
        return False
    except NoRoute:
        pass
    wanted = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    request = CreateOrUpdateTopic.of(wanted, attributes=f"+message.type={message_type}")
    masters = await _masters(session)
    await asyncio.gather(*(session.call(address, request, timeout_s) for address in masters.values()))
    until = session.clock.monotonic() + timeout_s
    while True:
        missing = set(masters)
        with suppress(NoRoute):
            route = await session.routes.refresh(topic)
            missing.difference_update(queue.broker_name for queue in route.publish_queues)
        if not missing:
            return True
        if session.clock.monotonic() > until:
            raise CallTimeout(f"{topic} is there, but name servers do not know it of {sorted(missing)}")
        await asyncio.sleep(_LOOK_S)


async def declare_group(session: Session, group: str, max_retries: int) -> None:
    """A group whose messages become dead letters after this many retries. A broker or a
    cluster that does not allow the change keeps its own number."""
    timeout_s = session.settings.call_timeout_s

    async def declare(address: str) -> None:
        try:
            known = (await session.call(address, GetGroupConfig(group=group), timeout_s)).body
        except Refused:
            known = SubscriptionGroupConfig(group_name=group, retry_max_times=-1)
        if known.retry_max_times == max_retries:
            return
        wanted = msgspec.structs.replace(known, retry_max_times=max_retries)
        try:
            await session.call(address, CreateOrUpdateGroup(body=wanted), timeout_s)
        except PyroError as problem:
            _log.info("the group keeps its retries group=%s broker=%s: %s", group, address, problem)

    try:
        masters = await _masters(session)
    except Refused as problem:
        _log.info("the group keeps its retries group=%s: %s", group, problem)
        return
    await asyncio.gather(*map(declare, masters.values()))


async def _masters(session: Session) -> dict[str, str]:
    """The address of each master, by the name of the broker."""
    answer = await session.ask_name_server(GetClusterInfo(), session.settings.call_timeout_s)
    brokers = answer.body.broker_addr_table
    found = {
        name: data.broker_addrs[MASTER_ID] for name, data in brokers.items() if MASTER_ID in data.broker_addrs
    }
    if not found:
        raise ConnectFailed("the cluster has no master now")
    return found
