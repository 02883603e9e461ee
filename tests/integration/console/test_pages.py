"""Every page of the console in front of a real cluster: in both languages, as HTML and as JSON."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import pytest
import pytest_asyncio
from tests.support.console_cluster import (
    GROUP,
    HOSTILE,
    LETTERS,
    ORDERS,
    RUN,
    SENT,
    Shown,
    shown_cluster,
)

from pyromq.admin import brokers
from pyromq.admin.cluster import Cluster
from pyromq.aio import PushConsumer
from pyromq.console import rendering
from pyromq.console.all_pages import PAGES
from pyromq.console.security.roles import UserRole
from pyromq.errors import ConnectFailed
from pyromq.remoting.slices import Slices

pytestmark = pytest.mark.asyncio(loop_scope="module")

BELOW = {
    "/c/{cluster}/topics/{topic}/messages/{id}": "topics/Orders/messages/{message_id}",
    "/c/{cluster}/topics/{topic}/at/{broker}/{queue:int}/{offset:int}": "topics/Orders/at/broker-a/0/0",
    "/c/{cluster}/brokers/{name}/{id:int}": "brokers/broker-a/0",
    "/c/{cluster}/do/{operation}": "do/topics.put",
    "/c/{cluster}/find": "find?q=ord",
    "/c/{cluster}/pipelines/{id}": f"pipelines/{RUN}",
    "/c/{cluster}/topics/{topic}/lite/{lite}": "topics/Orders/lite/chat-7",
    "/c/{cluster}/clients": f"clients?group={GROUP}",
}
VOID = {"meta", "link", "input", "br", "wbr", "hr", "img"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    async with shown_cluster(tmp_path_factory.mktemp("console")) as made:
        yield made


def address(path: str, shown: Shown) -> str:
    below = BELOW.get(path)
    if below is not None:
        return f"/c/default/{below.format(message_id=shown.message_id)}"
    return path.replace("{cluster}", "default").replace("{topic}", ORDERS).replace("{group}", GROUP)


class Balanced(HTMLParser):
    """Whether every element is closed where it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag == "script":
            self.scripts.append(dict(attrs).get("src") or "inline")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_every_page_is_whole_in_each_language(shown: Shown, path: str, lang: str) -> None:
    where = address(path, shown)
    browser = await shown.browser(UserRole.ADMIN)
    page = await browser.get(f"{where}{'&' if '?' in where else '?'}lang={lang}")
    assert page.status == 200, page
    assert f'<html lang="{lang}"' in page.text
    assert page.text.count("<h1>") == 1
    checked = Balanced()
    checked.feed(page.text)
    assert checked.open == []
    assert all(script.startswith("/static/") for script in checked.scripts)
    assert HOSTILE not in page.text


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_every_page_is_json_too(shown: Shown, path: str) -> None:
    page = await shown.admin.get_json(address(path, shown))
    assert page.status == 200
    assert page.headers["content-type"] == "application/json"
    assert isinstance(page.json, dict)


async def ask(shown: Shown, below: str) -> Any:
    page = await shown.admin.get_json(f"/c/default/{below}")
    assert page.status == 200, page
    return page.json


async def test_lists_ask_the_cluster_nothing(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask_server = Cluster.ask

    async def counted(cluster: Cluster, address: str, *arguments: Any) -> Any:
        # The watch asks all the time; a page asks through its own copy.
        if cluster is not shown.state.clusters["default"].cluster:
            asked.append(address)
        return await ask_server(cluster, address, *arguments)

    monkeypatch.setattr(Cluster, "ask", counted)
    for below in ("", "topics?q=o&sort=-in", "groups", "dlq", "brokers", "find?q=o", "do/topics.put"):
        assert (await shown.admin.get(f"/c/default/{below}")).status == 200
    await shown.admin.get("/")
    assert asked == []
    await shown.admin.get("/c/default/topics/Orders/route")
    assert len(asked) == 1


async def test_a_refresh_is_rendered_once_for_all_viewers_of_a_role(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    render = rendering.render_in_turns

    async def counted(template: str, context: dict[str, Any], turns: Slices) -> str:
        rendered.append(template)
        return await render(template, context, turns)

    async def nothing() -> None:
        """The snapshot stays the same."""

    monkeypatch.setattr(shown.state.clusters["default"].watch, "publish", nothing)
    monkeypatch.setattr("pyromq.console.page.render_in_turns", counted)
    pages = []
    for role in (UserRole.VIEWER, UserRole.VIEWER, UserRole.ADMIN):
        browser = await shown.browser(role)
        browser._app = shown.admin._app
        pages.append(await browser.get("/c/default/topics?q=rd", hx_request="true"))
    assert rendered == ["topics.html"] * 2
    assert pages[0].text == pages[1].text
    assert 'id="fresh"' in pages[0].text
    # What is shared names only who is looking, and offers nobody more than the role has.
    assert [(">viewer<" in page.text, ">admin<" in page.text) for page in pages] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert "do/topics.put" in pages[2].text
    assert "do/topics.put" not in pages[0].text
    assert ">viewer<" in (await (await shown.browser(UserRole.VIEWER)).get("/c/default/topics?q=rd")).text


async def test_topics_are_filtered_sorted_and_cut_on_the_server(shown: Shown) -> None:
    data = await ask(shown, "topics")
    assert ORDERS in [topic["name"] for topic in data["topics"]]
    assert not [topic for topic in data["topics"] if topic["is_system"]]
    everything = await ask(shown, "topics?system=1&size=2&page=2")
    assert len(everything["topics"]) == 2
    assert everything["list"]["page"] == 2
    assert everything["list"]["pages"] > 2
    assert (await ask(shown, "topics?q=ORD"))["list"]["total"] == 1
    assert (await ask(shown, "topics?q=nothing"))["topics"] == []
    down = [topic["name"] for topic in (await ask(shown, "topics?system=1&sort=-name"))["topics"]]
    assert down == sorted(down, reverse=True)


async def test_messages_are_read_newest_first_and_say_how_far_they_looked(shown: Shown) -> None:
    data = await ask(shown, "topics/Orders/messages?size=10")
    times = [each["stored_ms"] for each in data["messages"]]
    assert times == sorted(times, reverse=True)
    assert (data["stop"], len(times)) == ("rows", 10)
    seen = {(each["broker"], each["queue"], each["offset"]) for each in data["messages"]}
    while data["go_on"]:
        data = await ask(shown, f"topics/Orders/messages?size=10&at={data['go_on']}")
        more = {(each["broker"], each["queue"], each["offset"]) for each in data["messages"]}
        assert not seen & more
        seen |= more
    assert len(seen) == SENT + 1
    assert data["stop"] == "end"


async def test_a_search_has_three_fields_and_the_others_are_open_only_if_one_is_used(shown: Shown) -> None:
    page = (await shown.admin.get("/c/default/topics/Orders/messages")).text
    simple, _, more = page.partition('<details class="more"><summary>')
    assert re.findall('name="(.*?)"', simple[simple.index('<form class="tools"') :]) == ["time", "to", "key"]
    assert len(re.findall('name="(.*?)"', more[: more.index("</form>")])) == 9
    for query in ("tags=even", "order=oldest", "queue=0"):
        narrowed = (await shown.admin.get(f"/c/default/topics/Orders/messages?{query}")).text
        assert '<details class="more" open>' in narrowed


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("order=oldest&size=500", SENT + 1),
        ("tags=even&size=500", SENT // 2),
        ("tags=even+%7C%7C+evil&size=500", SENT // 2 + 1),
        ("sql=TAGS+%3D+%27odd%27&size=500", SENT // 2),
        ("text=ALERT&size=500", 1),
        ("json=%24.paid%3Dtrue&size=500", SENT // 2),
        ("json=%24.id%3D7&size=500", 1),
        ("key=key-7", 1),
        ("broker=broker-a&queue=0&offset=0&order=oldest&size=1", 1),
        ("time=2000-01-01T00:00&order=oldest&size=500", SENT + 1),
        ("time=2000-01-01T00:00&size=500", SENT + 1),
        ("to=2000-01-01T00:00", 0),
        ("to=2000-01-01T00:00&order=oldest", 0),
        ("time=2000-01-01T00:00&to=2200-01-01T00:00&size=500", SENT + 1),
        ("time=2200-01-01T00:00&to=2000-01-01T00:00", 0),
    ],
)
async def test_messages_are_filtered(shown: Shown, query: str, count: int) -> None:
    assert len((await ask(shown, f"topics/Orders/messages?{query}"))["messages"]) == count


@pytest.mark.parametrize("query", ["json=x", "time=yesterday", "queue=x", "at=x", "sql=TAGS+IS"])
async def test_a_filter_that_makes_no_sense_is_refused_with_a_reason(shown: Shown, query: str) -> None:
    page = await shown.admin.get_json(f"/c/default/topics/Orders/messages?{query}")
    assert page.status == 400
    assert page.json["error"]
    assert not page.json["hint"]


async def test_a_message_shows_its_body_place_and_fate(shown: Shown) -> None:
    data = await ask(shown, f"topics/Orders/messages/{shown.message_id}")
    assert data["id"] == shown.message_id
    assert data["body"]["text"] == HOSTILE
    assert data["properties"]["KEYS"] == "evil"
    assert [fate["consumerGroup"] for fate in data["fates"]] == [GROUP]
    page = await shown.admin.get(f"/c/default/topics/Orders/messages/{shown.message_id}")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩" in page.text


async def test_bodies_are_hidden_from_those_who_may_not_read_them(shown: Shown) -> None:
    viewer = await shown.browser(UserRole.VIEWER)
    assert "alert(1)" not in (await viewer.get("/c/default/topics/Orders/messages")).text
    data = (await viewer.get_json(f"/c/default/topics/Orders/messages/{shown.message_id}")).json
    assert data["body"] is None


async def test_a_download_has_every_byte_and_is_never_shown_by_a_browser(shown: Shown) -> None:
    data = await ask(shown, f"topics/Orders/messages/{shown.message_id}")
    page = await shown.admin.get(
        f"/c/default/topics/Orders/at/{data['broker']}/{data['queue']}/{data['offset']}/body"
    )
    assert page.body == HOSTILE.encode()
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment;")


async def test_a_group_shows_its_lag_by_topic_and_queue(shown: Shown) -> None:
    (group,) = [each for each in (await ask(shown, "groups"))["groups"] if each["name"] == GROUP]
    assert group["lag"] > 0
    queues = (await ask(shown, f"groups/{GROUP}/queues"))["queues"]
    assert sum(each["lag"] for each in queues) == group["lag"]
    assert (await ask(shown, f"topics/{ORDERS}/groups"))["groups"][0]["group"] == GROUP
    assert "no member" in (await ask(shown, f"groups/{GROUP}/members"))["why"]


async def test_dead_letters_are_listed_and_exported(shown: Shown) -> None:
    (row,) = (await ask(shown, "dlq"))["groups"]
    assert (row["name"], row["dead_letters"]) == (GROUP, LETTERS)
    letters = (await ask(shown, f"groups/{GROUP}/dlq"))["letters"]
    assert {letter["origin_topic"] for letter in letters} == {ORDERS}
    assert {letter["origin_id"] for letter in letters} == {f"ORIGIN{number}" for number in range(LETTERS)}
    csv = await shown.admin.get(f"/c/default/groups/{GROUP}/dlq.csv")
    assert csv.text.count("\r\n") == LETTERS + 1
    assert '"\'=dead 0"' in csv.text
    lines = (await shown.admin.get(f"/c/default/groups/{GROUP}/dlq.ndjson")).text.splitlines()
    assert len(lines) == LETTERS


async def test_names_with_percent_signs_survive(shown: Shown) -> None:
    page = await shown.admin.get("/c/default/topics/%25DLQ%25billing")
    assert page.status == 200
    assert "/c/default/topics/%25DLQ%25billing/messages" in page.text
    assert "/c/default/topics/%25DLQ%25billing?span=15m" in page.text


async def test_what_does_not_exist_is_said_with_a_hint(shown: Shown) -> None:
    page = await shown.admin.get("/c/default/topics/Order")
    assert page.status == 404
    assert "did you mean Orders?" in page.text
    assert (await shown.admin.get("/c/default/groups/nope/settings")).status == 404
    assert (await shown.admin.get("/c/default/topics/nope/at/broker-a/0/0")).status == 404
    assert (await shown.admin.get("/c/default/groups/billing/dlq.xls")).status == 404


@pytest.mark.parametrize("tab", ["", "/groups"])
async def test_a_topic_is_shown_as_far_as_its_brokers_answer(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, tab: str
) -> None:
    silent = await shown.cluster.broker_address("broker-b")
    ask = Cluster.ask

    async def ask_unless_silent(cluster: Cluster, address: str, *more: Any) -> Any:
        if address == silent:
            raise ConnectFailed(f"{address}: no answer")
        return await ask(cluster, address, *more)

    monkeypatch.setattr(Cluster, "ask", ask_unless_silent)
    page = await shown.admin.get(f"/c/default/topics/{ORDERS}{tab}")
    assert page.status == 200
    assert f"{silent}: no answer" in page.text


async def test_settings_of_brokers_that_differ_are_compared(shown: Shown) -> None:
    data = await ask(shown, "brokers/differences")
    assert data["compared"] == ["broker-a/0", "broker-b/0"]
    assert "brokerName" in [row["setting"] for row in data["rows"]]


async def test_a_broker_with_a_tier_shows_what_is_where(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (await shown.admin.get("/c/default/brokers/broker-a/0")).text
    assert "Lake tier" not in text
    assert re.search(r"iB free of [\d.]+ .iB<", text)
    told = brokers.runtime_info
    more = {"tierPlace": "s3://lake/here", "tierEnd": "4096", "tierLagBytes": "2048", "tierLagSeconds": "90"}
    more |= {"tierReads": "17", "tierProblem": "<the store is away>"}

    async def with_tier(cluster: Cluster, address: str) -> dict[str, str]:
        return await told(cluster, address) | more

    monkeypatch.setattr(brokers, "runtime_info", with_tier)
    text = (await shown.admin.get("/c/default/brokers/broker-a/0")).text
    assert "Lake tier" in text
    assert "s3://lake/here" in text
    assert re.search(r"Not uploaded yet</dt><dd>2\.0 KiB <span class=\"quiet\">1 min 30 s<", text)
    assert "0 that write or list, 17 that read" in text
    assert '<span class="bad">&lt;the store is away&gt;</span>' in text


async def test_name_servers_that_agree_say_so(shown: Shown) -> None:
    assert (await ask(shown, "nameservers/diff"))["rows"] == []
    assert "agree" in (await shown.admin.get("/c/default/nameservers/diff")).text


async def test_probes_need_no_session(shown: Shown) -> None:
    shown_to_all = await shown.browser(UserRole.VIEWER)
    shown_to_all.cookies.clear()
    assert (await shown_to_all.get("/ready")).status == 200
    metrics = (await shown_to_all.get("/metrics")).text
    assert 'pyromq_console_brokers{cluster="default"} 2' in metrics


async def test_every_look_at_bodies_is_in_the_audit_log(shown: Shown) -> None:
    await ask(shown, "topics/Orders/messages?size=1")
    entry = shown.state.audit.newest_first(1)[0]
    assert (entry.who, entry.what, entry.fields["topic"]) == ("admin", "bodies.read", ORDERS)


async def test_the_stacks_of_a_member_are_asked_for_on_demand_alone(shown: Shown) -> None:
    consumer = PushConsumer("lookers", namesrv=shown.running.namesrv, start_from="last")
    consumer.subscribe(ORDERS, "*", lambda _: None)
    async with consumer:
        path = "groups/lookers/members"
        assert [each["stack"] for each in (await ask(shown, path))["members"]] == [None]
        (member,) = (await ask(shown, f"{path}?stacks=1"))["members"]
        assert "MainThread" in member["stack"]
