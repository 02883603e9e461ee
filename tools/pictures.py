"""Takes the pictures of the web console in docs/pictures, of a small cluster at work on several topics.

python -m tools.pictures
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.console_cluster import GROUP, ORDERS
from tests.support.console_thread import console_thread
from tests.support.places import ROOT
from tools.chromium import chromium

from pyromq.admin import groups, messages, offsets, pipeline_runs, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.pipeline_runs import Ending, PipelineRun, QueryRun, TopicRun
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig

PICTURES = ROOT / "docs" / "pictures"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
PAGES = {
    "overview": "",
    "problems": "problems",
    "topics": "topics",
    "topic": f"topics/{ORDERS}",
    "messages": f"topics/{ORDERS}/messages",
    "message": f"topics/{ORDERS}/at/broker-a/0/0",
    "tail": f"topics/{ORDERS}/tail?with=Payments,Shipments",
    "groups": "groups",
    "group": f"groups/{GROUP}",
    "group-queues": f"groups/{GROUP}/queues",
    "dead-letters": "dlq",
    "reset": f"do/offsets.reset?group={GROUP}&topic={ORDERS}&to=end",
    "brokers": "brokers",
    "broker": "brokers/broker-a/0",
    "name-servers": "nameservers",
    "controllers": "controllers",
    "clients": f"clients?group={GROUP}",
    "pipelines": "pipelines",
}
"""The page below its cluster, by the name of its pictures."""
SHOTS = (
    *((f"console-{name}", below, "light", "en", WIDE) for name, below in PAGES.items()),
    *((f"console-{name}-narrow", below, "light", "en", NARROW) for name, below in PAGES.items()),
    ("console-topics-dark", "topics", "dark", "en", WIDE),
    ("console-groups-zh", "groups", "dark", "zh", NARROW),
)
"""The name of a picture, the page below its cluster, colours, language and size."""
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


def main() -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        console_thread(Path(home), anonymous_role="ADMIN") as console,
        sync_playwright() as playwright,
    ):
        console.call(prepare(console.cluster.namesrv))
        console.call(work(console.cluster.namesrv))
        keep_runs(console.console.settings.pipeline_runs, console.cluster.namesrv)
        browser: Any = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, below, colours, language, size in SHOTS:
            context = browser.new_context(
                color_scheme=colours, viewport=size, locale={"en": "en-GB", "zh": "zh-CN"}[language]
            )
            page = context.new_page()
            page.goto(f"{console.url}/c/default/{below}")
            if "do/" in below:
                page.get_by_role("button", name="Preview").click()
                page.locator("#plan").wait_for()
            if "/tail" in below:
                page.locator("#tail", has_text="matched").wait_for()
                console.call(one_more(console.cluster.namesrv))
                page.wait_for_timeout(3000)
            page.wait_for_timeout(1000)
            page.screenshot(path=PICTURES / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
