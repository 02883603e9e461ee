"""Takes the pictures of the web console in docs/pictures, of a small cluster at work on several topics.

Every page has one of 1280 and one of 390 pixels.

python -m tools.pictures
"""

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.access import ROOT as ADMINISTRATOR
from tests.support.access import SECURE
from tests.support.console_cluster import CHAT, CHATS, GROUP, LIGHT, ORDERS, fill_chats
from tests.support.console_thread import ConsoleThread, console_thread
from tests.support.places import ROOT
from tools.chromium import chromium

from pyromq.admin import access, groups, messages, offsets, pipeline_runs, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.pipeline_runs import Ending, PipelineRun, QueryRun, TopicRun
from pyromq.protocol.requests.access import UserInfo
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig

Shot: TypeAlias = tuple[str, str, str, str, dict[str, int]]
PICTURES = ROOT / "docs" / "pictures"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
PAGES = {
    "clusters": ("Clusters", "/"),
    "log-in": ("Logging in", "/login"),
    "overview": ("Overview", ""),
    "problems": ("Problems", "problems"),
    "find": ("Searching everything", "find?q=o"),
    "topics": ("Topics", "topics"),
    "topic": ("A topic", f"topics/{ORDERS}"),
    "topic-groups": ("Its groups", f"topics/{ORDERS}/groups"),
    "topic-route": ("Its route", f"topics/{ORDERS}/route"),
    "topic-producers": ("Its producers", f"topics/{ORDERS}/producers"),
    "topic-settings": ("Its settings", f"topics/{ORDERS}/settings"),
    "lite-topics": ("Its lite topics", f"topics/{CHATS}/lite"),
    "lite-topic": ("A lite topic", f"topics/{CHATS}/lite/{CHAT}"),
    "topic-spark": ("Its queries of Spark", f"topics/{ORDERS}/spark"),
    "messages": ("Messages", f"topics/{ORDERS}/messages"),
    "message": ("A message", f"topics/{ORDERS}/at/broker-a/0/0"),
    "tail": ("A live tail of three topics", f"topics/{ORDERS}/tail?with=Payments,Shipments"),
    "groups": ("Groups", "groups"),
    "group": ("A group", f"groups/{GROUP}"),
    "group-queues": ("Its queues", f"groups/{GROUP}/queues"),
    "group-members": ("Its members", f"groups/{GROUP}/members"),
    "group-offsets": ("Its offsets, and former resets", f"groups/{GROUP}/offsets"),
    "group-dead-letters": ("Its dead letters", f"groups/{GROUP}/dlq"),
    "group-settings": ("Its settings", f"groups/{GROUP}/settings"),
    "dead-letters": ("Dead letters", "dlq"),
    "reset": ("A reset of offsets", f"do/offsets.reset?group={GROUP}&topic={ORDERS}&to=end"),
    "brokers": ("Brokers", "brokers"),
    "broker": ("A broker", "brokers/broker-a/0"),
    "broker-differences": ("Differences between brokers", "brokers/differences"),
    "replication": ("Replication", "brokers/replication"),
    "stores": ("Files of brokers", "brokers/stores"),
    "name-servers": ("Name servers", "nameservers"),
    "name-server-differences": ("Differences between name servers", "nameservers/diff"),
    "controllers": ("Controllers", "controllers"),
    "clients": ("Clients", f"clients?group={GROUP}"),
    "pipelines": ("Pipeline runs", "pipelines"),
    "pipeline": ("A pipeline run", "pipelines/archive-1"),
    "me": ("The user", "/me"),
    "audit": ("The audit log", "/audit"),
    "access": ("Users, quotas and policies", "access"),
    "access-check": (
        "Which rule decides",
        "access/check?user=till&action=Pub&resource=Topic:Orders&from=10.0.0.7",
    ),
    "quotas": ("Quotas of a user", "do/access.user.change?user=till"),
}
"""By the name of its pictures: the title of a page, and its address, below its cluster or from the top."""
SECURE_PAGES = ("access", "access-check", "quotas")
"""Those for which brokers have users."""
PICTURES_OF_PAGES = tuple(
    (f"console-{name}{suffix}", below, "light", "en", size)
    for suffix, size in (("", WIDE), ("-narrow", NARROW))
    for name, (_, below) in PAGES.items()
)
OTHER_PICTURES = (
    ("console-topics-dark", "topics", "dark", "en", WIDE),
    ("console-groups-zh", "groups", "dark", "zh", NARROW),
)
"""The name of a picture, the page, colours, language and size."""
TOPICS = (
    ("Payments", "FIFO", "accounting"),
    ("Shipments", "NORMAL", "warehouse"),
    ("Invoices", "TRANSACTION", "accounting"),
    ("Reminders", "DELAY", "mailing"),
    ("Clicks", "NORMAL", "analytics"),
)
"""Topics beside the orders: name, message type, and the group that reads them."""
_SECONDS = 40


async def prepare(namesrv: str) -> None:
    """More topics, and groups that read them."""
    async with Cluster(namesrv) as cluster:
        masters = [member.address for member in await cluster.masters()]
        for name, kind, group in TOPICS:
            await topics.put(
                cluster,
                masters,
                TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4),
                f"+message.type={kind}",
            )
            await groups.put(cluster, masters, SubscriptionGroupConfig(group_name=group))
        await fill_chats(cluster, *(f"chat-{number}" for number in range(1, 13)))


def keep_runs(directory: Path, namesrv: str) -> None:
    """Runs of pipelines, instead of the one that tests have."""
    for each in directory.glob("*.json"):
        each.unlink()
    now_ms = time.time_ns() // 1_000_000
    runs: tuple[tuple[str, int, int, int, Ending], ...] = (
        ("archive", 95, 812_340, 57, ""),
        ("sql", 12, 40_210, 3, ""),
        ("replay", 240, 25_000, 0, "ended"),
    )
    for job, minutes, rows, lag, ending in runs:
        reads = {ORDERS: TopicRun(rows // 2, lag), "Payments": TopicRun(rows // 2, 0)} if lag else {}
        query = QueryRun(rows, rows, None, minutes * 6, rows / 900, minutes * 60.0, None, reads)
        started_ms = now_ms - minutes * 60_000
        run = PipelineRun(
            f"{job}-1",
            job,
            namesrv,
            "host-a",
            7,
            started_ms,
            now_ms,
            "lake/",
            ending=ending,
            queries={job: query},
        )
        pipeline_runs.keep(directory, run)


async def work(namesrv: str) -> None:
    """Some traffic, so that charts have something to show."""
    async with Cluster(namesrv) as cluster:
        for second in range(_SECONDS):
            await traffic(cluster, second)
            await asyncio.sleep(1)


async def one_more(namesrv: str) -> None:
    async with Cluster(namesrv) as cluster:
        await traffic(cluster, _SECONDS)


async def traffic(cluster: Cluster, second: int) -> None:
    for place, (topic, _, group) in enumerate(((ORDERS, "", GROUP), *TOPICS)):
        for number in range(2 + (second + place) % 7 * (4 - place % 4)):
            body = b'{"order": %d, "sku": "A-%d"}' % (second, number)
            await messages.send(cluster, topic, body, tags="new", keys=f"{topic}-{second}-{number}")
        if topic != ORDERS:
            # Some keep up, some fall behind.
            stats = await topics.stats(cluster, topic)
            for queue, ends in stats.offset_table.items():
                address = await cluster.broker_address(queue.broker_name)
                read = ends.max_offset * (10 - place) // 10
                await offsets.commit(cluster, address, group, queue, read)


async def give_rights(namesrv: str) -> None:
    async with Cluster(namesrv, credentials=ADMINISTRATOR) as cluster:
        addresses = [member.address for member in await cluster.masters()]
        attributes = {"quota.send.messages": "1000", "quota.send.bytes": "1048576"}
        for name, resource, action in (("till", "Topic:Orders", "Pub"), ("billing", "Group:billing", "Sub")):
            await access.create_user(cluster, addresses, name, UserInfo(password="a long password"))
            acl = access.acl([resource], [action], "Allow", ["10.0.0.0/8"])
            await access.create_acl(cluster, addresses, f"User:{name}", acl)
        limited = UserInfo(attributes=attributes)
        await access.update_user(cluster, addresses, "till", limited)


def take(browser: Any, console: ConsoleThread, shots: Iterable[Shot]) -> None:
    for name, below, colours, language, size in shots:
        context = browser.new_context(
            color_scheme=colours, viewport=size, locale={"en": "en-GB", "zh": "zh-CN"}[language]
        )
        page = context.new_page()
        page.goto(console.url + (below if below.startswith("/") else f"/c/default/{below}"))
        if "offsets.reset" in below:
            page.get_by_role("button", name="Preview").click()
            page.locator("#plan").wait_for()
        if "/tail" in below:
            page.locator("#tail", has_text="matched").wait_for()
            console.call(one_more(console.cluster.namesrv))
            page.wait_for_timeout(3000)
        page.wait_for_timeout(1000)
        page.screenshot(path=PICTURES / f"{name}.png")
        context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    secure = {PAGES[name][1] for name in SECURE_PAGES}
    shots = (*PICTURES_OF_PAGES, *OTHER_PICTURES)
    keys = {"access_key": ADMINISTRATOR.access_key, "secret_key": ADMINISTRATOR.secret_key}
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser: Any = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        with console_thread(Path(directory) / "open", LIGHT, anonymous_role="ADMIN") as console:
            console.call(prepare(console.cluster.namesrv))
            console.call(work(console.cluster.namesrv))
            keep_runs(console.console.settings.pipeline_runs, console.cluster.namesrv)
            take(browser, console, [shot for shot in shots if shot[1] not in secure])
        with console_thread(Path(directory) / "secure", SECURE, anonymous_role="ADMIN", **keys) as console:
            console.call(give_rights(console.cluster.namesrv))
            take(browser, console, [shot for shot in shots if shot[1] in secure])
        browser.close()


if __name__ == "__main__":
    main()
