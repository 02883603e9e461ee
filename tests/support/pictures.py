"""Takes the pictures of the web console in docs/pictures, of a small cluster that is at work.

python -m tests.support.pictures
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tests.support.chromium import chromium
from tests.support.console_cluster import GROUP, ORDERS
from tests.support.console_thread import console_thread
from tests.support.places import ROOT

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster

PICTURES = ROOT / "docs" / "pictures"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
SHOTS = (
    ("console-overview", "", "light", "en", WIDE),
    ("console-topics-dark", "topics", "dark", "en", WIDE),
    ("console-messages", f"topics/{ORDERS}/messages", "light", "en", WIDE),
    ("console-group", f"groups/{GROUP}", "light", "en", WIDE),
    ("console-reset", f"do/offsets.reset?group={GROUP}&topic={ORDERS}&to=end", "light", "en", WIDE),
    ("console-groups-zh", "groups", "dark", "zh", NARROW),
)
"""The name of a picture, the page below its cluster, colours, language and size."""
_SECONDS = 40


async def work(namesrv: str) -> None:
    """Some traffic, so that charts have something to show."""
    async with Cluster(namesrv) as cluster:
        for second in range(_SECONDS):
            for number in range(5 + second % 7 * 3):
                await messages.send(
                    cluster, ORDERS, b'{"order": %d, "sku": "A-%d"}' % (second, number), tags="new"
                )
            await asyncio.sleep(1)


def main() -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        console_thread(Path(home), anonymous_role="ADMIN") as console,
        sync_playwright() as playwright,
    ):
        console.call(work(console.cluster.namesrv))
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
            page.wait_for_timeout(1000)
            page.screenshot(path=PICTURES / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
