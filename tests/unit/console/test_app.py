"""Who gets in, and what every answer carries; without a cluster, which these pages never reach."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qsl, quote

import pytest
from tests.support.console_browser import CHEAP_HASHES, JSON, Browser

from pyromq.clock import ManualClock
from pyromq.console import rendering
from pyromq.console.all_pages import PAGES, STREAMS
from pyromq.console.app import make_app
from pyromq.console.operations.all_operations import OPERATIONS
from pyromq.console.pages import downloads
from pyromq.console.security.headers import ALWAYS, CONTENT_SECURITY_POLICY
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.server import Console
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.console.streams import ticks
from pyromq.console.visit import Visit
from pyromq.console.watch.values import (
    BrokerView,
    GoneBroker,
    LastAnswer,
    Problem,
    Severity,
    Snapshot,
    TopicView,
)
from pyromq.errors import ConfigError
from pyromq.remoting.slices import Slices

PASSWORD = "correct horse battery"
PLACES = {
    "cluster": "default",
    "topic": "%RETRY%g",
    "group": "g",
    "id": "0",
    "broker": "b",
    "queue:int": "0",
    "offset:int": "0",
    "name": "b",
    "id:int": "0",
    "operation": "topics.put",
    "form": "csv",
}


def address(path: str) -> str:
    for name, value in PLACES.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


def state_in(home: Path, clock: ManualClock | None = None, **settings: Any) -> State:
    users = Users(home / "users.json")
    for role in UserRole:
        users.put(role.word, PASSWORD, role, reads_bodies=role is UserRole.ADMIN)
    chosen: dict[str, Any] = {"namesrv_addr": "127.0.0.1:9", "home": home, **settings}
    return State(ConsoleSettings(**chosen), users, clock=clock)


@pytest.fixture(scope="module", autouse=True)
def cheap_hashes() -> Iterator[None]:
    with CHEAP_HASHES:
        yield


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    return state_in(tmp_path_factory.mktemp("console"))


async def logged_in(state: State, role: UserRole = UserRole.ADMIN) -> Browser:
    browser = Browser(make_app(state))
    person = state.users.person(role.word)
    assert person is not None
    browser.cookies["pyromq_console"] = state.sessions.open(person)[0]
    return browser


WITH_LOGIN = [page.path for page in PAGES if page.needs is not None] + [*STREAMS, *downloads.ALL]


@pytest.mark.parametrize("path", WITH_LOGIN)
async def test_no_page_is_shown_before_a_log_in(state: State, path: str) -> None:
    browser = Browser(make_app(state))
    page = await browser.get(address(path))
    assert page.status == 303
    assert page.headers["location"].startswith("/login?next=%2F")
    assert (await browser.get_json(address(path))).status == 401


@pytest.mark.parametrize(
    "path", ["/", "/login", "/health", "/ready", "/metrics", "/nope", "/static/x", "/c/nope/"]
)
async def test_every_answer_has_the_headers(state: State, path: str) -> None:
    page = await (await logged_in(state)).get(path)
    for name, value in ALWAYS.items():
        assert page.headers[name.lower()] == value
    assert page.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in page.headers
    assert "unsafe" not in CONTENT_SECURITY_POLICY


async def test_static_files_are_kept_for_ever_and_compressed(state: State) -> None:
    browser = Browser(make_app(state))
    name = f"/static/{state.static.addresses['console.css']}"
    packed = await browser.get(name, accept_encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert "immutable" in packed.headers["cache-control"]
    assert len(packed.body) < len((await browser.get(name)).body)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8088", "10.0.0.1:8088"])
async def test_a_foreign_host_is_refused(state: State, host: str) -> None:
    page = await Browser(make_app(state), host=host).get("/login")
    assert page.status == 421
    assert "allowedHosts" in page.text


async def test_probes_may_ask_under_any_address(state: State) -> None:
    for path, status in (("/health", 200), ("/ready", 503), ("/metrics", 421), ("/health/", 421)):
        assert (await Browser(make_app(state), host="10.0.0.7:8088").get(path)).status == status


async def test_a_large_request_is_refused(state: State) -> None:
    browser = await logged_in(state)
    assert (await browser.post("/login", {"name": "x" * 2_000_000})).status == 413
    # Without a length, or with a wrong one, it is counted.
    assert (await browser.post("/login", {"name": "x" * 2_000_000}, content_length="10")).status == 413


async def test_a_log_in_opens_a_session_and_a_log_out_ends_it(state: State) -> None:
    browser = Browser(make_app(state))
    page = await browser.log_in("viewer", PASSWORD)
    assert (page.status, page.headers["location"]) == (303, "/me")
    (cookie,) = page.cookies
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    me = await browser.get("/me")
    assert "viewer" in me.text
    kept = dict(browser.cookies)
    assert (await browser.post("/logout", {"csrf": me.token})).status == 303
    browser.cookies = kept
    assert (await browser.get("/me")).status == 303


async def test_over_tls_the_cookie_is_bound_to_the_host_and_hsts_is_sent(state: State) -> None:
    browser = Browser(make_app(state), scheme="https")
    page = await browser.log_in("viewer", PASSWORD)
    (cookie,) = page.cookies
    assert cookie.startswith("__Host-")
    assert "; Secure" in cookie
    assert "Path=/" in cookie
    assert "strict-transport-security" in page.headers


async def test_every_failed_log_in_says_the_same_and_the_sixth_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    browser = Browser(make_app(state_in(tmp_path, clock)))
    pages = [
        await browser.log_in(name, "wrong") for name in ("viewer", "nobody", "viewer", "viewer", "nobody")
    ]
    assert {page.status for page in pages} == {401}
    assert len({page.text for page in pages}) == 1
    clock.advance(0.1)
    assert (await browser.log_in("viewer", PASSWORD)).status == 429
    clock.advance(1.0)
    assert (await browser.log_in("viewer", PASSWORD)).status == 303


@pytest.mark.parametrize(
    "next_page", ["//evil.example/", "https://evil.example", "/\\evil.example", "javascript:1"]
)
async def test_a_log_in_never_leads_to_another_site(state: State, next_page: str) -> None:
    form = {"name": "viewer", "password": PASSWORD, "next": next_page}
    page = await Browser(make_app(state)).post("/login", form)
    assert page.headers["location"] == "/"


POSTS = ["/login", "/logout", "/c/default/do/topics.put"]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "", "origin": "http://evil.example"},
        {"sec_fetch_site": "", "origin": ""},
    ],
)
async def test_a_forged_write_is_refused(state: State, path: str, headers: dict[str, str]) -> None:
    browser = await logged_in(state)
    token = await browser.token()
    page = await browser.post(path, {"csrf": token, "topic": "t"}, **headers)
    assert page.status == 403


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_write_without_the_token_of_the_session_is_refused(state: State, token: str) -> None:
    browser = await logged_in(state)
    page = await browser.post("/c/default/do/topics.put", {"csrf": token, "topic": "t"}, accept=JSON)
    assert page.status == 403
    stranger = await (await logged_in(state)).token()
    assert (await browser.post("/c/default/do/topics.put", {"csrf": stranger, "topic": "t"})).status == 403


async def test_no_page_changes_anything_with_get(state: State) -> None:
    browser = await logged_in(state)
    for name, kind in OPERATIONS.items():
        page = await browser.get(f"/c/default/do/{name}?step=apply&csrf={await browser.token()}")
        assert page.status == 200
        assert kind.NAME in page.text
    assert (await browser.get("/logout")).status == 405


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("role", UserRole)
@pytest.mark.parametrize("accept", ["text/html", JSON])
async def test_the_role_is_checked_on_every_operation(
    state: State, name: str, role: UserRole, accept: str
) -> None:
    browser = await logged_in(state, role)
    token = await browser.token()
    path = f"/c/default/do/{name}"
    shown = await browser.get(path, accept=accept)
    for step in ("preview", "apply"):
        page = await browser.post(path, {"csrf": token, "step": step}, accept=accept)
        # Without its fields no operation runs, whoever asks for it.
        assert page.status == (400 if role >= OPERATIONS[name].ROLE else 403)
    assert shown.status == (200 if role >= OPERATIONS[name].ROLE else 403)


async def test_a_read_only_console_has_no_operations(tmp_path: Path) -> None:
    browser = await logged_in(state_in(tmp_path, read_only=True))
    token = await browser.token()
    for name in OPERATIONS:
        assert (await browser.get(f"/c/default/do/{name}")).status == 404
        assert (await browser.post(f"/c/default/do/{name}", {"csrf": token, "step": "apply"})).status == 404
    assert "/do/" not in (await browser.get("/c/default/topics")).text


async def test_patterns_of_names_limit_what_an_operator_may_change(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.users.put("limited", PASSWORD, UserRole.ADMIN, names=("orders-*",))
    browser = Browser(make_app(state))
    await browser.log_in("limited", PASSWORD)
    form = {"csrf": await browser.token(), "topic": "billing", "step": "apply"}
    page = await browser.post("/c/default/do/topics.put", form, accept=JSON)
    assert page.status == 403
    assert "billing" in page.json["error"]


async def test_bodies_are_a_right_of_their_own(state: State) -> None:
    browser = await logged_in(state, UserRole.OPERATOR)
    for path in ("topics/t/tail", "topics/t/tail/stream", "topics/t/at/b/0/0/body", "groups/g/dlq.csv"):
        assert (await browser.get(f"/c/default/{path}")).status == 403
    assert (await browser.get("/c/default/topics/t/messages?text=x")).status == 403


async def test_the_audit_log_is_for_administrators(state: State) -> None:
    assert (await (await logged_in(state, UserRole.OPERATOR)).get("/audit")).status == 403
    assert (await (await logged_in(state, UserRole.ADMIN)).get("/audit")).status == 200


@pytest.mark.parametrize("prefix", ["", "/mq"])
async def test_behind_a_base_path_every_address_has_it(tmp_path: Path, prefix: str) -> None:
    browser = await logged_in(state_in(tmp_path, base_path="/mq"))
    page = await browser.get(f"{prefix}/c/default/topics")
    assert page.status == 200
    for attribute in ('href="/', 'src="/', 'action="/'):
        assert page.text.count(attribute) == page.text.count(f"{attribute}mq/")
    assert (
        (await Browser(make_app(state_in(tmp_path, base_path="/mq"))).get("/mq"))
        .headers["location"]
        .startswith("/mq/login")
    )


@pytest.mark.parametrize("prefix", ["", "/mq"])
async def test_a_slash_too_many_or_too_few_leads_to_the_page_below_the_base_path(
    tmp_path: Path, prefix: str
) -> None:
    browser = await logged_in(state_in(tmp_path, base_path="/mq"))
    for path, meant in (
        ("/c/default", "/mq/c/default/"),
        ("/c/default/topics/?q=a%25b&path=c", "/mq/c/default/topics?q=a%25b&path=c"),
        ("/c/default/topics/%25DLQ%25bank/", "/mq/c/default/topics/%25DLQ%25bank"),
    ):
        page = await browser.get(prefix + path)
        assert (page.status, page.headers["location"]) == (303, meant)
    assert (await browser.get(f"{prefix}/nowhere/")).status == 404
    assert (await browser.get("//evil.example/c/default")).status == 404


async def test_a_log_in_leads_back_to_a_name_with_percent_signs(state: State) -> None:
    page = await Browser(make_app(state)).get("/c/default/topics/%25DLQ%25bank?span=1h")
    back = dict(parse_qsl(page.headers["location"].partition("?")[2]))["next"]
    assert back == "/c/default/topics/%25DLQ%25bank?span=1h"


async def test_language_and_theme_come_from_the_url_and_are_kept(state: State) -> None:
    browser = await logged_in(state)
    page = await browser.get("/c/default/topics?lang=zh&theme=dark&q=x")
    assert '<html lang="zh" data-theme="dark">' in page.text
    again = await browser.get("/c/default/groups")
    assert '<html lang="zh" data-theme="dark">' in again.text
    assert "消费组" in again.text
    assert "?q=x&amp;lang=en" in page.text


async def test_a_page_without_data_says_that_it_waits(state: State) -> None:
    page = await (await logged_in(state)).get("/c/default/topics")
    assert "Waiting for the first answers" in page.text
    assert "There is no topic yet" not in page.text


async def test_a_broker_that_does_not_answer_is_named_with_the_age_of_its_part(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    silent = BrokerView(
        "c",
        "broker-q",
        0,
        "10.0.0.9:10911",
        True,
        told=LastAnswer(1_700_000_000_000, "10.0.0.9:10911: no answer in 3 s"),
    )
    problem = Problem("broker-silent", Severity.ALARM, "broker", "broker-q/0", {"problem": "no answer"}, 1)
    well = BrokerView("c", "broker-a", 0, "10.0.0.1:10911", True, told=LastAnswer(1))
    state.clusters["default"].watch.snapshot = Snapshot(1, 1, (well, silent), problems=(problem,))
    browser = await logged_in(state)
    for below in ("", "topics", "groups", "brokers"):
        page = await browser.get(f"/c/default/{below}")
        assert "1 of 2 brokers did not answer" in page.text
        assert "<strong>broker-q/0</strong> (10.0.0.9:10911): 10.0.0.9:10911: no answer in 3 s" in page.text
        assert "2023-11-14T22:13:20.000Z" in page.text
    assert 'href="/c/default/brokers/broker-q/0"' in (await browser.get("/c/default/")).text


async def test_an_unknown_cluster_is_no_address_to_dial(state: State) -> None:
    page = await (await logged_in(state)).get_json("/c/10.0.0.1:9876/topics")
    assert page.status == 404


def test_beyond_loopback_it_does_not_start_without_users(tmp_path: Path) -> None:
    settings = ConsoleSettings(bind_address="0.0.0.0", namesrv_addr="127.0.0.1:9", home=tmp_path)
    with pytest.raises(ConfigError, match="there are no users"):
        Console(settings)
    with pytest.raises(ConfigError, match="not loopback"):
        ConsoleSettings(bind_address="0.0.0.0", anonymous_role="VIEWER")


def test_on_loopback_the_first_start_makes_an_administrator_and_tells_the_password_once(
    tmp_path: Path,
) -> None:
    settings = ConsoleSettings(namesrv_addr="127.0.0.1:9", home=tmp_path)
    password = Console(settings).first_password
    assert password is not None
    assert Users(settings.users_file).load().check("admin", password) is not None
    assert Console(settings).first_password is None


async def test_a_live_page_is_rendered_once_for_everybody_and_names_each_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(tmp_path)
    hostile = "<!-- person -->"
    for name in ("ada", "bob"):
        state.users.put(name, PASSWORD, UserRole.VIEWER)
    topic = TopicView(hostile, "NORMAL", False, ("broker-a",), 4, 4, 6)
    watch = state.clusters["default"].watch
    watch.snapshot = Snapshot(1, 1, topics={hostile: topic})
    rendered: list[str] = []
    render = rendering.render_in_turns

    async def counted(template: str, context: dict[str, Any], turns: Slices) -> str:
        rendered.append(template)
        return await render(template, context, turns)

    monkeypatch.setattr("pyromq.console.page.render_in_turns", counted)
    app = make_app(state)

    async def look(name: str, **headers: str) -> str:
        browser = Browser(app)
        person = state.users.person(name)
        assert person is not None
        browser.cookies["pyromq_console"] = state.sessions.open(person)[0]
        return (await browser.get("/c/default/topics", **headers)).text

    pages = await asyncio.gather(look("ada"), look("bob"), look("ada", hx_request="true"))
    assert rendered == ["topics.html"]
    for name, text in zip(("ada", "bob", "ada"), pages, strict=True):
        assert f'<a href="/me">{name}</a>' in text
        assert text.replace(f">{name}<", ">ada<") == pages[0]
        assert "&lt;!-- person --&gt;" in text
    await look("admin")
    assert len(rendered) == 2, "another role sees other buttons"
    watch.snapshot = Snapshot(2, 2)
    assert "&lt;!--" not in await look("ada")
    assert len(rendered) == 3


async def test_who_was_removed_from_the_users_file_is_logged_out_without_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    state = state_in(tmp_path, clock)
    viewer, admin = await logged_in(state, UserRole.VIEWER), await logged_in(state)
    assert (await viewer.get("/me")).status == 200
    Users(tmp_path / "users.json").load().remove("viewer")
    clock.advance(2)
    assert (await viewer.get("/me")).status == 303
    assert (await admin.get("/me")).status == 200
    assert (await viewer.log_in("viewer", PASSWORD)).status == 401


async def test_many_problems_have_pages_of_their_own(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    problems = tuple(Problem("group-stuck", Severity.WARNING, "group", f"g{n:03}", {}, n) for n in range(120))
    state.clusters["default"].watch.snapshot = Snapshot(1, 1, problems=problems)
    browser = await logged_in(state)
    overview = (await browser.get("/c/default/")).text
    assert overview.count('<li class="warning">') == 20
    assert "All 120 problems" in overview
    page = (await browser.get_json("/c/default/problems?page=3")).json
    assert (len(page["problems"]), page["list"]["pages"]) == (20, 3)
    assert (await browser.get_json("/c/default/problems?severity=alarm")).json["problems"] == []


async def test_a_broker_that_left_is_still_named(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    gone = GoneBroker("c", "broker-q", 0, "10.0.0.9:10911", 1_700_000_000_000, None)
    problem = Problem("broker-gone", Severity.ALARM, "broker", "broker-q/0", {"address": gone.address}, 1)
    state.clusters["default"].watch.snapshot = Snapshot(1, 1, gone=(gone,), problems=(problem,))
    browser = await logged_in(state)
    for below in ("", "brokers"):
        text = (await browser.get(f"/c/default/{below}")).text
        assert "<strong>broker-q/0</strong> (10.0.0.9:10911)" in text
    assert "is no longer registered" in (await browser.get("/c/default/problems")).text


async def test_a_proxy_that_logs_people_in_names_them_and_the_users_file_says_what_they_may(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    state = state_in(tmp_path, clock, trusted_proxies="127.0.0.1", user_header="X-User")
    browser = Browser(make_app(state))
    assert (await browser.get("/me")).status == 303
    assert (await browser.get("/me", x_user="stranger")).status == 303
    assert (await browser.get_json("/me", x_user="operator")).json["role"] == "operator"
    token = (await browser.get("/me", x_user="viewer")).token
    form = {"csrf": token, "step": "preview", "topic": "t"}
    assert (await browser.post("/c/default/do/topics.put", form, x_user="viewer")).status == 403
    forged = {**form, "csrf": "x"}
    assert "has expired" in (await browser.post("/c/default/do/topics.put", forged, x_user="admin")).text
    Users(tmp_path / "users.json").load().remove("viewer")
    clock.advance(2)
    assert (await browser.get("/me", x_user="viewer")).status == 303
    elsewhere = Browser(make_app(state), client="192.0.2.7", host="127.0.0.1:8088")
    assert (await elsewhere.get("/me", x_user="admin")).status in (303, 421)


async def test_of_many_brokers_the_overview_shows_the_silent_and_the_fullest(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    brokers = [
        BrokerView(
            "c",
            f"b{n:02}",
            0,
            f"h:{n}",
            is_master=True,
            told=LastAnswer(1, "silent" * (n == 3)),
            disk_ratio=n / 100,
        )
        for n in range(30)
    ]
    watch = state.clusters["default"].watch
    watch.snapshot = Snapshot(1, 1, brokers=tuple(brokers))
    admin = await logged_in(state)
    text = (await admin.get("/c/default/")).text
    assert "All 30 brokers" in text
    shown = re.findall(r'href="/c/default/brokers/(b\d\d)/0">b\d\d/0</a>', text)
    assert shown == ["b03", *(f"b{n:02}" for n in range(29, 10, -1))]
    assert len((await admin.get_json("/c/default/")).json["brokers"]) == 30
    watch.snapshot = Snapshot(2, 2, brokers=tuple(brokers[:20]))
    assert "All 20 brokers" not in (await admin.get("/c/default/")).text


async def test_a_page_is_not_told_of_the_snapshot_that_it_shows(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    state.clusters["default"].watch.snapshot = Snapshot(1000, 7)
    admin = await logged_in(state)
    assert 'hx-sse:connect="/c/default/live?seen=7"' in (await admin.get("/c/default/")).text
    for query, header, is_told in (
        ("", "", True),
        ("?seen=7", "", False),
        ("?seen=6", "", True),
        ("?seen=6", "7", False),
        ("?seen=x", "", True),
    ):
        visit = SimpleNamespace(
            shown=state.clusters["default"],
            state=state,
            text=lambda name, query=query: query.removeprefix(f"?{name}="),
            request=SimpleNamespace(headers={"last-event-id": header} if header else {}),
        )
        events = cast(AsyncIterator[bytes], (await ticks(cast(Visit, visit))).body_iterator)
        assert await anext(events) == b"retry: 2000\n\n"
        state.is_stopping = not is_told
        assert (b"event: tick" in await anext(events)) == is_told
        state.is_stopping = False


async def test_a_closed_tab_ends_the_work_behind_its_page(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def look(*_: object, **__: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("look")

    monkeypatch.setattr("pyromq.admin.browsing.look", look)
    admin = await logged_in(state)
    assert (await admin.get_and_leave("/c/default/topics/t/messages")).status == 499
    assert ended == ["look"]
    assert (await admin.get("/me")).status == 200
