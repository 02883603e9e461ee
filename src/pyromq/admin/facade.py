"""Administration of topics and groups by services, as one class: a stable face of the functions here.

Names are the application's: `namespace` is put in front of them, as producers and consumers do.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, Unpack

import msgspec

from pyromq.admin import erasing, groups, offsets, progress, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.erasing import ErasedKey
from pyromq.admin.failures import NotFound
from pyromq.client.declaring import TopicType
from pyromq.client.namespaces import unwrap, wrap
from pyromq.client.opened import Opened
from pyromq.client.settings import ClientOptions, ClientSettings
from pyromq.clock import clock_of
from pyromq.cluster.routes import route_addresses
from pyromq.errors import ConfigError, StateError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.topics import TopicConfig

_TYPE = "message.type"
_LOOK_S = 0.02


class QueueRange(msgspec.Struct, frozen=True):
    """The messages that a queue has: from `first` up to, but without, `end`."""

    queue: MessageQueue
    first: int
    end: int
    changed_at: datetime | None
    """When the last message was stored; None if there is none."""


class TopicDescription(msgspec.Struct, frozen=True):
    name: str
    message_type: str
    """`NORMAL`, `FIFO`, …; `UNSPECIFIED` if none was given."""
    queues: tuple[QueueRange, ...]
    groups: tuple[str, ...]
    """The groups that read it."""

    @property
    def messages(self) -> int:
        return sum(each.end - each.first for each in self.queues)


class QueueLag(msgspec.Struct, frozen=True):
    queue: MessageQueue
    end: int
    done: int
    """The first offset that the group has not committed, or not popped."""

    @property
    def behind(self) -> int:
        return self.end - self.done


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is behind, also with its retries."""

    group: str
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        return sum(each.behind for each in self.queues)


class Admin(Opened):
    """`async with Admin("127.0.0.1:9876") as admin: await admin.create_topic("Orders")`.

    `NotFound` says that a topic or a group does not exist. Everything else is in `mqadmin`.
    """

    def __init__(self, namesrv: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]) -> None:
        """`namesrv`: addresses of name servers or a URL, None: PYROMQ_URL or NAMESRV_ADDR."""
        self._settings = ClientSettings.of(namesrv, **options)
        if not self._settings.namesrv:
            raise ConfigError("namesrv", "", "addresses of name servers; Admin knows no namesrv_url")
        self._cluster: Cluster | None = None

    def __repr__(self) -> str:
        return f"<Admin {';'.join(self._settings.namesrv)}>"

    async def start(self) -> None:
        """Done by `async with`."""
        if self._cluster is not None:
            raise StateError("the Admin is already started")
        settings = self._settings
        cluster = Cluster(
            settings.namesrv,
            timeout_s=settings.call_timeout_s,
            credentials=settings.credentials,
            tls=settings.tls,
            clock=clock_of(asyncio.get_running_loop()),
        )
        self._cluster = await cluster.__aenter__()

    async def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.__aexit__(None, None, None)

    # Topics

    async def create_topic(
        self, topic: str, *, queues: int = 8, message_type: TopicType = "NORMAL", cluster: str | None = None
    ) -> None:
        """Create a topic with this many queues on every master, or change it. Returns when clients can use
        it. With several clusters, `cluster` names one."""
        name, known = self._wrap(topic), self._known
        masters = await known.masters(cluster)
        wanted = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        await topics.put(known, [each.address for each in masters], wanted, f"+{_TYPE}={message_type}")
        brokers = {each.broker_name for each in masters}
        until = known.clock.monotonic() + self._settings.call_timeout_s
        while missing := brokers - await self._brokers_of(name):
            if known.clock.monotonic() > until:
                raise StateError(f"{topic} is there, but name servers do not know it of {sorted(missing)}")
            await asyncio.sleep(_LOOK_S)

    async def topics(self) -> list[str]:
        """The topics of applications, without those that brokers need themselves."""
        found: set[str] = set()
        for master in await self._known.masters():
            found |= (await topics.user_configs(self._known, master.address)).keys()
        return sorted(unwrap(name, self._settings.namespace) for name in found if self._is_ours(name))

    async def describe_topic(self, topic: str) -> TopicDescription:
        name, known = self._wrap(topic), self._known
        address = next(iter(route_addresses(await known.route(name)).values()))
        table = (await topics.stats(known, name)).offset_table
        return TopicDescription(
            topic,
            (await topics.config(known, address, name)).attributes.get(_TYPE, "UNSPECIFIED"),
            tuple(
                QueueRange(queue, each.min_offset, each.max_offset, _time(each.last_update_timestamp))
                for queue, each in sorted(table.items())
            ),
            tuple(unwrap(group, self._settings.namespace) for group in await topics.readers(known, name)),
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its messages."""
        name, known = self._wrap(topic), self._known
        for cluster in await topics.clusters_of(known, name):
            await topics.delete(known, name, cluster)

    # Groups

    async def groups(self) -> list[str]:
        """The groups that have consumed."""
        found = await groups.names_of_groups(self._known)
        return sorted(unwrap(name, self._settings.namespace) for name in found if self._is_ours(name))

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is behind, in all its topics or in one. Members commit every few seconds.

        A group that has never read the topic has all of it before it.
        """
        name = None if topic is None else self._wrap(topic)
        try:
            found = await progress.of_group(self._known, self._wrap(group), name)
        except NotFound:
            if topic is None or name is None:
                raise
            stored = (await topics.stats(self._known, name)).offset_table
            ends = ((queue, each.max_offset, each.min_offset) for queue, each in sorted(stored.items()))
            return GroupLag(group, tuple(QueueLag(*each) for each in ends))
        return GroupLag(
            group,
            tuple(QueueLag(each.queue, each.broker_offset, each.consumer_offset) for each in found.queues),
        )

    async def delete_group(self, group: str) -> None:
        """Delete a group with its offsets, retries and dead letters. Its members should have ended: one that
        runs on makes it again."""
        name, known = self._wrap(group), self._known
        masters = await known.masters()
        await groups.delete(known, [each.address for each in masters], name, with_offsets=True)
        for cluster in sorted({each.cluster for each in masters}):
            await groups.delete_leftovers(known, name, cluster)

    async def purge(self, group: str, topic: str) -> int:
        """Let a group skip everything that waits for it in a topic; returns the number of messages.

        Other groups keep them. Members may be running; what they hold already is theirs.
        """
        waiting = (await self.lag(group, topic)).total
        await self.reset_offsets(group, topic, "last")
        return waiting

    # Messages

    async def erase(self, topic: str, keys: Iterable[str], cluster: str | None = None) -> None:
        """Erase all messages that have one of these keys, in the logs and in the lake tier. Brokers do it in
        the background: `erasures` says when it is complete. It cannot be undone."""
        masters = [each.address for each in await self._known.masters(cluster)]
        if not await erasing.erase(self._known, masters, self._wrap(topic), keys):
            raise NotFound(f"there is no topic {topic}")

    async def erasures(self, topic: str, cluster: str | None = None) -> list[ErasedKey]:
        """How far each broker is, replicas included, with the keys that `erase` was asked for."""
        members = await self._known.members(cluster)
        found = [await erasing.progress(self._known, each.address, self._wrap(topic)) for each in members]
        return [each for keys in found for each in keys]

    async def reset_offsets(
        self, group: str, topic: str, to: Literal["first", "last"] | datetime
    ) -> dict[MessageQueue, int]:
        """Let a group continue at the first message, after the last one, or at a time; returns the new
        offsets. Members may be running."""
        if isinstance(to, datetime):
            at_ms = round(to.timestamp() * 1000)
        elif to in ("first", "last"):
            at_ms = 0 if to == "first" else offsets.TO_THE_END
        else:
            raise ConfigError("to", to, '"first", "last" or a datetime')
        moved = await offsets.reset(self._known, self._wrap(group), self._wrap(topic), at_ms)
        return {each.queue: each.offset for each in moved}

    @property
    def _known(self) -> Cluster:
        if self._cluster is None:
            raise StateError("the Admin is not started: use it in `with` or `async with`")
        return self._cluster

    def _wrap(self, name: str) -> str:
        return wrap(name, self._settings.namespace)

    def _is_ours(self, name: str) -> bool:
        return self._wrap(name) == name

    async def _brokers_of(self, name: str) -> set[str]:
        with suppress(NotFound):
            return set(route_addresses(await self._known.route(name)))
        return set()


def _time(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC) if at_ms > 0 else None
