"""Every page in a real browser: both languages, light and dark, wide and narrow, usable by everybody."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.access import ROOT, SECURE
from tests.support.console_cluster import CHAT, CHATS, GROUP, LIGHT, ORDERS, RUN, fill_chats
from tests.support.console_thread import ConsoleThread, console_thread
from tools.chromium import axe

from pyromq.admin import access, groups, topics
from pyromq.admin.cluster import Cluster
from pyromq.console.all_pages import PAGES
from pyromq.console.watch.forecast import FullDisk
from pyromq.protocol.requests.access import UserInfo
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

RULES = """() => axe.run(
    document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']})"""
SIDEWAYS = """() => [...document.querySelectorAll('html, main, .scroll, .scroll *, figure')]
    .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth + 1)
    .filter((each) => !each.matches('.hidden, td.body'))
    .map((each) => `${each.tagName} ${each.className} ${each.scrollWidth} > ${each.clientWidth}`)"""
"""What hides something at its side. Only the body of a message in a list is cut, on purpose."""
BROKEN = """() => [...document.querySelectorAll('.button')].filter((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
    return lines.size > each.textContent.trim().split(/\\s+/).length;
}).map((each) => each.textContent)"""
"""Buttons with a line end inside a word."""
LABELS = """
    window.labels = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const at = this.getTransform().transformPoint({x, y}), wide = this.measureText(text).width;
        const left = at.x - {left: 0, start: 0, center: 0.5, right: 1, end: 1}[this.textAlign] * wide;
        window.labels.push([text, this.textAlign === 'right' ? 'y' : 'x', left, wide, this.canvas.width]);
        return draw.apply(this, arguments);
    };"""
"""Remembers what charts write: text, axis, left and width, and the width of the chart."""
LONG = "a-long-name-as-companies-have-them_payments_settlement_retries_v2"
AT = f"/c/default/topics/{ORDERS}/at/broker-a/0/0"
BELOW = {
    "/c/{cluster}/topics/{topic}/messages/{id}": "/c/default/topics/Orders/messages/{message_id}",
    "/c/{cluster}/topics/{topic}/at/{broker}/{queue:int}/{offset:int}": AT,
    "/c/{cluster}/brokers/{name}/{id:int}": "/c/default/brokers/broker-a/0",
    "/c/{cluster}/do/{operation}": "/c/default/do/offsets.reset",
    "/c/{cluster}/find": "/c/default/find?q=ord",
    "/c/{cluster}/pipelines/{id}": f"/c/default/pipelines/{RUN}",
    "/c/{cluster}/topics/{topic}/lite": f"/c/default/topics/{CHATS}/lite",
    "/c/{cluster}/topics/{topic}/lite/{lite}": f"/c/default/topics/{CHATS}/lite/{CHAT}",
    "/c/{cluster}/clients": f"/c/default/clients?group={GROUP}",
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    home = tmp_path_factory.mktemp("console")
    with console_thread(home, LIGHT, anonymous_role="ADMIN") as running:
        running.call(_fill(running))
        yield running


async def _fill(running: ConsoleThread) -> None:
    async with Cluster(running.cluster.namesrv) as cluster:
        await fill_chats(cluster, CHAT)


def addresses(console: ConsoleThread) -> list[str]:
    found = [BELOW.get(page.path, page.path) for page in PAGES]
    filled = (
        path.replace("{cluster}", "default")
        .replace("{topic}", ORDERS)
        .replace("{group}", GROUP)
        .replace("{message_id}", console.message_id)
        for path in found
    )
    return [*filled, "/nowhere"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_page_can_be_used_by_everybody(
    console: ConsoleThread, open_page: Callable[..., Any], lang: str, scheme: str, width: int
) -> None:
    page = open_page(
        console.url,
        color_scheme=scheme,
        viewport={"width": width, "height": 844},
        locale={"en": "en-GB", "zh": "zh-CN"}[lang],
    )
    page.add_init_script(axe())
    for path in addresses(console):
        page.goto(console.url + path, wait_until="load")
        assert page.evaluate("document.documentElement.lang") == lang
        check(page, path)
        if path == "/nowhere":
            # The browser itself reports a page that is not there.
            page.troubles[:] = [text for text in page.troubles if "404" not in text]


def check(page: Any, what: str) -> None:
    """Everybody can use the page as it is now, and nothing sticks out at its side."""
    violations = page.evaluate(RULES)["violations"]
    found = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in violations]
    assert found == [], what
    assert page.evaluate(SIDEWAYS) == [], what
    assert page.evaluate(BROKEN) == [], what


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_hides_anything_at_its_side(
    console: ConsoleThread, open_page: Callable[..., Any], width: int
) -> None:
    """With long names, and brokers about which everything is known."""
    watch = console.console.state.clusters["default"].watch

    async def crowd() -> None:
        async with Cluster(console.cluster.namesrv) as cluster:
            masters = [member.address for member in await cluster.masters()]
            await topics.put(cluster, masters, TopicConfig(topic_name=LONG))
            await groups.put(cluster, masters, SubscriptionGroupConfig(group_name=LONG))
        watch.changed_something()
        now = await watch.look()
        watch.publish = asyncio.Event().wait  # type: ignore[method-assign, assignment]
        full = FullDisk(now.at_ms + 3 * 3_600_000, 0.75, is_poor=False)
        many = [
            replace(
                broker,
                name=f"{broker.name}-frankfurt-{number}",
                address="127.120.130.140:10911",
                is_drained=True,
                full=full,
                in_per_s=123_456.0,
                out_per_s=123_456.0,
                flush_behind_bytes=123_456_789,
                dispatch_behind_bytes=123_456_789,
                oldest_ms=now.at_ms,
            )
            for number, broker in enumerate(now.brokers)
        ]
        crowded = replace(now, brokers=(*now.brokers, *many), version=now.version + 1000)
        watch.snapshot = crowded

    console.call(crowd())
    try:
        page = open_page(console.url, viewport={"width": width, "height": 844}, locale="en-GB")
        found = {}
        for path in (*addresses(console)[:-1], f"/c/default/topics/{LONG}", f"/c/default/groups/{LONG}"):
            page.goto(console.url + path, wait_until="load")
            if sideways := page.evaluate(SIDEWAYS):
                found[path] = sideways
        assert found == {}
    finally:
        del watch.publish


@pytest.mark.parametrize(("span", "known"), [("15m", 1), ("24h", 1), ("15m", 1 / 18)])
@pytest.mark.parametrize("width", [1280, 390])
def test_axes_begin_at_0_and_their_labels_are_whole_and_do_not_overlap(
    console: ConsoleThread, open_page: Callable[..., Any], width: int, span: str, known: float
) -> None:
    watch = console.console.state.clusters["default"].watch

    def readings(about: str, name: str, figure: str, span_s: float) -> list[tuple[float, float]]:
        value = {"disk": 0.5, "lag": 123_456_789.0}.get(figure, 12_345.6)
        return [(1_700_000_000.0 + at * span_s * known / 100, value * (1 + at / 1000)) for at in range(101)]

    watch.readings = readings  # type: ignore[method-assign]
    try:
        page = open_page(console.url, viewport={"width": width, "height": 844}, timezone_id="Asia/Kolkata")
        page.add_init_script(LABELS)
        for path in ("/c/default/", "/c/default/brokers/broker-a/0"):
            page.goto(f"{console.url}{path}?span={span}", wait_until="load")
            page.locator(".chart canvas").nth(1).wait_for()
            labels = page.evaluate("new Promise((done) => requestAnimationFrame(() => done(labels)))")
            # Charts are drawn again when the page brings news.
            zeros = sum(text == "0" for text, axis, *_ in labels if axis == "y")
            assert zeros > 0 == zeros % 2, path
            assert all(0 <= left <= end - wide for _, _, left, wide, end in labels), (path, labels)
            times = [(text, left, wide) for text, axis, left, wide, _ in labels if axis == "x"]
            # In UTC: the first is 22:13:20.
            assert {text[:3] for text, *_ in times} & {"22:", "00:"}, times
            for (_, left, wide), (text, next_left, _) in pairwise(times):
                assert next_left < left or left + wide + 4 <= next_left, (path, text)
    finally:
        del watch.readings


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    """A console before brokers with access control, with one user more."""
    keys = {"access_key": ROOT.access_key, "secret_key": ROOT.secret_key}
    with console_thread(tmp_path_factory.mktemp("secure"), SECURE, anonymous_role="ADMIN", **keys) as running:
        running.call(grant_to_ada(running.cluster.namesrv))
        yield running


async def grant_to_ada(namesrv: str) -> None:
    async with Cluster(namesrv, credentials=ROOT) as cluster:
        addresses = [member.address for member in await cluster.masters()]
        await access.create_user(cluster, addresses, "ada", UserInfo(password="the password of ada"))
        await access.update_acl(cluster, addresses, "User:ada", access.acl(["Topic:o*"], ["Pub"], "Allow"))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_users_and_policies_and_open_menus_can_be_used_by_everybody(
    secure: ConsoleThread, open_page: Callable[..., Any], scheme: str, width: int
) -> None:
    page = open_page(secure.url, color_scheme=scheme, viewport={"width": width, "height": 844})
    page.add_init_script(axe())
    for lang in ("en", "zh"):
        page.goto(f"{secure.url}/c/default/access?lang={lang}", wait_until="load")
        assert page.get_by_role("rowheader", name="ada").count() == 2
        check(page, "access")
        page.locator(".choices summary").click()
        page.locator(".choices .menu[open] a").first.wait_for()
        check(page, "the menu of colours")
        query = "user=ada&action=Pub&resource=Topic:orders"
        page.goto(f"{secure.url}/c/default/access/check?{query}", wait_until="load")
        assert page.locator("td .good").count() == 2
        check(page, "access/check")
        page.goto(f"{secure.url}/c/default/do/access.user.create", wait_until="load")
        assert page.get_attribute("#f-password", "type") == "password"
        check(page, "a form with a password")
