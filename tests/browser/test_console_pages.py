"""Every page in a real browser: both languages, light and dark, wide and narrow, usable by everybody."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.access import ROOT, SECURE
from tests.support.chromium import axe
from tests.support.console_cluster import GROUP, ORDERS, RUN
from tests.support.console_thread import ConsoleThread, console_thread

from pyromq.admin import access
from pyromq.admin.cluster import Cluster
from pyromq.console.all_pages import PAGES
from pyromq.protocol.requests.access import UserInfo

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
        check(page, path)
        if path == "/nowhere":
            # The browser itself reports a page that is not there.
            page.troubles[:] = [text for text in page.troubles if "404" not in text]


def check(page: Any, what: str) -> None:
    """Everybody can use the page as it is now, and nothing sticks out at its side."""
    violations = page.evaluate(RULES)["violations"]
    found = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in violations]
    assert found == [], what
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, what


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
