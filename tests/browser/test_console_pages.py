"""Every page in a real browser: both languages, light and dark, wide and narrow, usable by everybody."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.chromium import axe
from tests.support.console_cluster import GROUP, ORDERS, RUN
from tests.support.console_thread import ConsoleThread, console_thread

from pyromq.console.all_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

RULES = """() => axe.run(
    document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']})"""
AT = f"/c/default/topics/{ORDERS}/at/broker-a/0/0"
BELOW = {
    "/c/{cluster}/topics/{topic}/messages/{id}": "/c/default/topics/Orders/messages/{message_id}",
    "/c/{cluster}/topics/{topic}/at/{broker}/{queue:int}/{offset:int}": AT,
    "/c/{cluster}/brokers/{name}/{id:int}": "/c/default/brokers/broker-a/0",
    "/c/{cluster}/do/{operation}": "/c/default/do/offsets.reset",
    "/c/{cluster}/find": "/c/default/find?q=ord",
    "/c/{cluster}/pipelines/{id}": f"/c/default/pipelines/{RUN}",
    "/c/{cluster}/clients": f"/c/default/clients?group={GROUP}",
}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    with console_thread(tmp_path_factory.mktemp("console"), anonymous_role="ADMIN") as running:
        yield running


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
        violations = page.evaluate(RULES)["violations"]
        found = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in violations]
        assert found == [], path
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        if path == "/nowhere":
            # The browser itself reports a page that is not there.
            page.troubles[:] = [text for text in page.troubles if "404" not in text]
