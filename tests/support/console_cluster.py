"""A cluster with something of everything that the console shows, and a console that looks at it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.console_browser import CHEAP_HASHES, Browser

from pyromq.admin import groups, messages, offsets, pipeline_runs, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.pipeline_runs import PipelineRun, QueryRun, TopicRun
from pyromq.console.app import make_app
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import dlq_topic, retry_topic
from pyromq.protocol.properties import LITE_TOPIC, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.standalone import Standalone
from pyromq.testing.clusters import aio_cluster

CHATS, CHAT, AGENTS, CHAT_MINUTES = "Chats", "chat-7", "agents", 60
LIGHT: Mapping[str, Any] = {"light_queues": True, "multi_dispatch": True}
"""What brokers need for lite topics."""
ORDERS, GROUP, QUEUES, SENT, LETTERS = "Orders", "billing", 4, 60, 3
RUN = "archive-1700000000000-7"
HOSTILE = "<script>alert(1)</script>\u202e\"'&"
PASSWORD = "correct horse battery"


@dataclass
class Shown:
    """What a test uses: the cluster, the console's state, and a browser of an administrator."""

    running: Standalone
    cluster: Cluster
    state: State
    admin: Browser
    message_id: str
    token: str = ""

    async def look(self) -> None:
        """Have the console look at the cluster now."""
        watch = self.state.clusters["default"].watch
        watch.changed_something()
        await watch.look()

    async def do(self, operation: str, step: str = "apply", accept: str = "text/html", **fields: Any) -> Any:
        form = {"csrf": self.token, "step": step, **fields}
        return await self.admin.post(f"/c/default/do/{operation}", form, accept=accept)

    async def browser(self, role: UserRole) -> Browser:
        browser = Browser(make_app(self.state))
        person = self.state.users.person(role.word)
        assert person is not None
        browser.cookies["pyromq_console"] = self.state.sessions.open(person)[0]
        return browser


@asynccontextmanager
async def shown_cluster(
    home: Path, broker: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Shown]:
    """`broker`: settings of its brokers; the others are those of the console."""
    async with aio_cluster(brokers=2, **broker or {}) as running, Cluster(running.namesrv) as cluster:
        message_id = await fill(cluster)
        users = Users(home / "users.json")
        with CHEAP_HASHES:
            for role in UserRole:
                users.put(role.word, PASSWORD, role, reads_bodies=role is not UserRole.VIEWER)
        chosen: dict[str, Any] = {"namesrv_addr": running.namesrv, "home": home, **settings}
        chosen.setdefault("pipeline_runs", keep_run(home, running.namesrv))
        state = State(ConsoleSettings(**chosen), users)
        await state.open()
        try:
            shown = Shown(running, cluster, state, Browser(make_app(state)), message_id)
            shown.admin = await shown.browser(UserRole.ADMIN)
            shown.token = await shown.admin.token()
            await shown.look()
            yield shown
        finally:
            await state.close()


def keep_run(home: Path, namesrv: str) -> Path:
    """A run of a pipeline that has read the orders; returns where runs are kept."""
    directory = home / "pipelines"
    topics = {ORDERS: TopicRun(SENT, 1), HOSTILE: TopicRun()}
    queries = {"archive": QueryRun(SENT, SENT, None, 2, 30.5, 2.0, "2026-01-01T00:00:00Z", topics)}
    run = PipelineRun(
        RUN,
        "archive",
        namesrv,
        "host-a",
        7,
        1_700_000_000_000,
        1_700_000_009_000,
        "lake/",
        GROUP,
        queries=queries,
    )
    pipeline_runs.keep(directory, run)
    return directory


async def fill(cluster: Cluster) -> str:
    """Messages, a group that is behind, and dead letters; returns the id of a message with a hostile body."""
    masters = [member.address for member in await cluster.masters()]
    for name in (ORDERS, retry_topic(GROUP), dlq_topic(GROUP)):
        config = TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        await topics.put(cluster, masters, config)
    await groups.put(cluster, masters, SubscriptionGroupConfig(group_name=GROUP))
    for number in range(SENT):
        body = b'{"id": %d, "paid": %s}' % (number, b"true" if number % 2 else b"false")
        await messages.send(cluster, ORDERS, body, tags=["even", "odd"][number % 2], keys=f"key-{number}")
    hostile = await messages.send(cluster, ORDERS, HOSTILE.encode(), tags="evil", keys="evil")
    for number in range(LETTERS):
        properties = {RETRY_TOPIC: ORDERS, ORIGIN_MESSAGE_ID: f"ORIGIN{number}"}
        await messages.send_with(cluster, dlq_topic(GROUP), b"=dead %d" % number, properties)
    for member in await cluster.masters():
        for number in range(QUEUES):
            queue = MessageQueue(ORDERS, member.broker_name, number)
            await offsets.commit(cluster, member.address, GROUP, queue, 1)
    return hostile.message_id


async def fill_chats(cluster: Cluster, *names: str) -> None:
    """A topic of type LITE with a message in each of these lite topics, and a group for it."""
    masters = [member.address for member in await cluster.masters()]
    attributes = f"+message.type=LITE,+lite.topic.expiration={CHAT_MINUTES}"
    await topics.put(cluster, masters, TopicConfig(topic_name=CHATS), attributes)
    group = SubscriptionGroupConfig(group_name=AGENTS, attributes={"+lite.bind.topic": CHATS})
    await groups.put(cluster, masters, group)
    for name in names:
        await messages.send_with(cluster, CHATS, b"hello", {LITE_TOPIC: name}, "broker-a", 0)
