"""The console as people use it: keys, forms, live figures, a tail, a broker that dies, a proxy."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import structs
from tests.support.console_cluster import CHATS, GROUP, LIGHT, ORDERS, PASSWORD, fill_chats
from tests.support.console_thread import ConsoleThread, console_thread

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.console.watch.values import TopicView

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with console_thread(tmp_path_factory.mktemp("console"), LIGHT, base_path="/mq") as running:
        yield running


@pytest.fixture
def page(console: ConsoleThread, open_page: Callable[..., Any]) -> Any:
    """A page of somebody who has logged in with the form."""
    page = open_page(console.url.removesuffix("/mq"), locale="en-GB", viewport={"width": 1280, "height": 844})
    page.goto(f"{console.url}/c/default/")
    page.fill("#name", "admin")
    page.fill("#password", PASSWORD)
    page.click("main button")
    page.wait_for_url("**/mq/c/default/")
    return page


def test_keys_lead_everywhere(console: ConsoleThread, page: Any) -> None:
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/mq/c/default/topics")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/topics/{ORDERS}")
    page.keyboard.press("/")
    page.keyboard.type("bill")
    page.keyboard.press("Enter")
    page.wait_for_url("**/find?q=bill")
    assert page.locator("main").get_by_role("link", name=GROUP, exact=True).count() == 1
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    # Letters in a field are letters.
    page.keyboard.press("Control+k")
    page.keyboard.type("gt?")
    assert page.input_value("#find").endswith("gt?")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("b")
    page.wait_for_url("**/mq/c/default/brokers")


def test_charts_are_drawn_once_there_is_something_to_draw(console: ConsoleThread, page: Any) -> None:
    page.goto(f"{console.url}/c/default/")
    page.locator(".chart canvas").first.wait_for(timeout=60_000)
    assert page.locator('script[src*="uPlot"]').count() == 1
    page.goto(f"{console.url}/c/default/topics")
    assert page.locator('script[src*="uPlot"]').count() == 0


def test_a_topic_is_made_with_a_form_and_deleted_by_typing_its_name(
    console: ConsoleThread, page: Any
) -> None:
    page.goto(f"{console.url}/c/default/topics")
    page.get_by_role("link", name="Create topic").click()
    page.fill("#f-topic", "FromBrowser")
    page.get_by_role("button", name="Preview").click()
    assert "mqadmin updateTopic" in page.text_content(".line")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("heading", name="Done").wait_for()
    page.get_by_role("link", name="Open").click()
    page.wait_for_url("**/topics/FromBrowser")
    page.get_by_role("link", name="Delete topic").click()
    page.get_by_role("button", name="Preview").click()
    page.fill("#confirm", "FromBrowser")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_role("heading", name="Done").wait_for()


def test_a_lite_topic_is_found_by_its_name_and_deleted_by_typing_it(
    console: ConsoleThread, page: Any
) -> None:
    async def fill() -> None:
        async with Cluster(console.cluster.namesrv) as cluster:
            await fill_chats(cluster, *(f"chat-{number:02}" for number in range(60)))

    console.call(fill())
    page.goto(f"{console.url}/c/default/topics/{CHATS}/lite")
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**/lite?begin=chat-50")
    assert page.locator("tbody tr").count() == 10
    page.get_by_label("Names beginning with").fill("chat-4")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/lite?q=chat-4")
    assert page.locator("tbody tr").count() == 10
    page.get_by_role("link", name="chat-42").click()
    page.get_by_role("link", name="Delete lite topic").click()
    page.get_by_role("button", name="Preview").click()
    assert "mqadmin deleteLiteTopic" in page.text_content(".line")
    page.fill("#confirm", "chat-42")
    page.get_by_role("button", name="Delete lite topic").click()
    page.get_by_role("heading", name="Done").wait_for()
    page.get_by_role("link", name="Open").click()
    page.wait_for_url(f"**/topics/{CHATS}/lite")
    assert page.get_by_role("link", name="chat-42").count() == 0


def test_a_filter_acts_while_it_is_typed_and_is_in_the_url(console: ConsoleThread, page: Any) -> None:
    """With ten thousand topics."""
    watch = console.console.state.clusters["default"].watch
    shape = TopicView("", "NORMAL", False, ("broker-a",), 4, 4, 6)
    many = {
        f"topic-{number:05}": structs.replace(shape, name=f"topic-{number:05}") for number in range(10_000)
    }
    real = watch.snapshot

    async def show(topics: Any) -> None:
        # The watch would replace it within a second.
        watch.publish = _nothing  # type: ignore[method-assign]
        watch.snapshot = replace(real, topics=MappingProxyType(topics), version=real.version + 1000)

    console.call(show(many))
    try:
        page.goto(f"{console.url}/c/default/topics")
        assert "10,000 total" in page.text_content(".pager")
        page.locator("[data-filter]").press_sequentially("0042")
        page.wait_for_url("**/topics?q=0042")
        page.locator(".pager", has_text="11 of 10,000").wait_for()
        assert page.locator("#fresh tbody tr").count() == 11
        assert page.evaluate("document.activeElement.name") == "q"
        page.reload()
        assert page.input_value("[data-filter]") == "0042"
        page.get_by_role("link", name="Topic", exact=True).click()
        page.wait_for_url(re.compile(r"sort=name"))
        page.get_by_role("link", name="Topic ↑").click()
        page.wait_for_url(re.compile(r"sort=-name"))
        assert page.locator("tbody th").first.text_content() == "topic-00429"
    finally:
        del watch.publish


async def _nothing() -> None:
    await asyncio.sleep(0)


def test_a_tail_shows_what_arrives_and_can_be_paused(console: ConsoleThread, page: Any) -> None:
    page.goto(f"{console.url}/c/default/topics/{ORDERS}/tail")
    page.locator("#tail", has_text="matched").wait_for()

    async def send(body: bytes) -> None:
        async with Cluster(console.cluster.namesrv) as cluster:
            await messages.send(cluster, ORDERS, body)

    console.call(send(b"<b>first</b>"))
    page.get_by_role("cell", name="<b>first</b>").wait_for()
    page.keyboard.press(".")
    assert page.get_attribute("#pause", "aria-pressed") == "true"
    console.call(send(b"second"))
    page.wait_for_timeout(2500)
    assert page.get_by_role("cell", name="second").count() == 0
    page.keyboard.press(".")
    page.get_by_role("cell", name="second").wait_for()
    console.call(send(b"third"))
    page.get_by_role("cell", name="third").wait_for()


def test_a_broker_that_dies_leaves_the_table_and_is_still_named(console: ConsoleThread, page: Any) -> None:
    page.goto(f"{console.url}/c/default/brokers")
    row = page.get_by_role("rowheader", name="broker-b/0")
    assert row.count() == 1
    console.call(console.cluster.kill_broker(1))
    row.wait_for(state="detached", timeout=60_000)
    named = page.locator("main .alarm", has_text="broker-b/0")
    named.wait_for()
    console.call(console.cluster.start_broker(1))
    row.wait_for(timeout=60_000)
    named.wait_for(state="detached", timeout=60_000)


def test_a_page_says_when_it_is_not_live_any_more(
    tmp_path_factory: pytest.TempPathFactory, open_page: Callable[..., Any]
) -> None:
    with console_thread(tmp_path_factory.mktemp("gone"), anonymous_role="VIEWER") as gone:
        page = open_page(gone.url, locale="en-GB")
        page.goto(f"{gone.url}/c/default/topics")
        page.locator("#age", has_text="As of").wait_for()
        assert page.troubles == []
        gone.call(gone.console.stop())
        page.locator("#age.lost", has_text="Not live since").wait_for(timeout=10_000)
        page.goto("about:blank")
    # The browser says itself that the connection was refused.
    page.troubles.clear()
