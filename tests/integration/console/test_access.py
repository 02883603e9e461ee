"""Users and policies of brokers on the console's pages: listed, explained, changed by administrators only."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.access import ROOT, SECURE
from tests.support.console_browser import JSON, Browser
from tests.support.console_cluster import Shown

from pyromq.admin import access, access_overview
from pyromq.admin.cluster import Cluster
from pyromq.console.app import make_app
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.protocol.requests.access import UserInfo
from pyromq.testing.clusters import aio_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "the new password of ada"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    home = tmp_path_factory.mktemp("console")
    async with (
        aio_cluster(brokers=2, **SECURE) as running,
        Cluster(running.namesrv, credentials=ROOT) as cluster,
    ):
        users = Users(home / "users.json")
        for role in UserRole:
            users.put(role.word, PASSWORD, role)
        users.put("limited", PASSWORD, UserRole.ADMIN, names=("ada*",))
        settings = ConsoleSettings(
            namesrv_addr=running.namesrv, home=home, access_key=ROOT.access_key, secret_key=ROOT.secret_key
        )
        state = State(settings, users)
        await state.open()
        try:
            made = Shown(running, cluster, state, Browser(make_app(state)), "")
            made.admin = await made.browser(UserRole.ADMIN)
            made.token = await made.admin.token()
            yield made
        finally:
            await state.close()


async def rows(shown: Shown, query: str = "") -> Any:
    page = await shown.admin.get_json(f"/c/default/access{query}")
    assert page.status == 200, page
    return page.json


async def test_a_user_is_made_changed_given_rights_explained_and_deleted(shown: Shown) -> None:
    done = await shown.do("access.user.create", accept=JSON, user="ada", password=PASSWORD)
    assert (done.status, len(done.json["done"]["rows"])) == (200, 2), done
    (ada,) = (await rows(shown, "?q=ada"))["users"]
    assert (ada["name"], ada["type"], ada["status"]) == ("ada", "Normal", "enable")
    assert ada["brokers"] == ["broker-a", "broker-b"]
    fields = {"resources": "Topic:orders*, Group:g", "actions": "Pub,Sub", "decision": "Allow"}
    assert (await shown.do("access.policy.put", user="ada", **fields)).status == 200
    found = (await rows(shown, "?q=User:ada"))["policies"]
    assert {(row["resource"], tuple(row["actions"])) for row in found} == {
        ("Topic:orders*", ("Pub", "Sub")),
        ("Group:g", ("Pub", "Sub")),
    }

    asked = "/c/default/access/check?user=ada&action=Pub&resource=Topic:orders1&from=10.0.0.1"
    decisions = (await shown.admin.get_json(asked)).json["decisions"]
    assert [(each["broker"], each["isAllowed"]) for each in decisions] == [
        ("broker-a", True),
        ("broker-b", True),
    ]
    assert "Allow Pub,Sub on Topic:orders*" in decisions[0]["rule"]
    refused = (await shown.admin.get_json(asked.replace("Pub", "Delete"))).json["decisions"]
    assert [each["isAllowed"] for each in refused] == [False, False]

    assert (await shown.do("access.user.change", user="ada", user_status="disable")).status == 200
    assert (await rows(shown, "?q=ada"))["users"][0]["status"] == "disable"
    delete = {"user": "ada", "resource": "Group:g", "confirm": "ada"}
    assert (await shown.do("access.policy.delete", **delete)).status == 200
    assert [row["resource"] for row in (await rows(shown))["policies"]] == ["Topic:orders*"]
    assert (await shown.do("access.user.delete", user="ada", confirm="ad")).status == 409
    assert (await shown.do("access.user.delete", user="ada", confirm="ada")).status == 200
    assert (await rows(shown, "?q=ada"))["users"] == []


async def test_quotas_of_a_user_are_shown_changed_and_taken_back(shown: Shown) -> None:
    await shown.do("access.user.create", user="kim", password=PASSWORD)
    change = {"user": "kim", "quota_send_messages": "100", "quota_read_bytes": "5000"}
    done = await shown.do("access.user.change", accept=JSON, **change)
    assert done.status == 200, done
    assert "--attributes +quota.send.messages=100,+quota.read.bytes=5000" in done.json["line"]
    (kim,) = (await rows(shown, "?q=kim"))["users"]
    assert kim["quotas"] == [["quota.read.bytes", "5000"], ["quota.send.messages", "100"]]
    assert "quota.send.messages=100" in (await shown.admin.get("/c/default/access?q=kim")).text
    form = (await shown.admin.get_json("/c/default/do/access.user.change?user=kim")).json["fields"]
    assert {each["name"]: each["value"] for each in form}["quota_send_messages"] == "100"
    done = await shown.do("access.user.change", accept=JSON, user="kim", quota_send_messages="0")
    assert "--attributes -quota.send.messages" in done.json["line"]
    (kim,) = (await rows(shown, "?q=kim"))["users"]
    assert kim["quotas"] == [["quota.read.bytes", "5000"]]
    refused = await shown.do("access.user.change", accept=JSON, user="kim", quota_send_messages="-1")
    assert "quota.send.messages=-1: expected a whole number" in str(refused.json["done"]["failed"])
    await shown.do("access.user.delete", user="kim", confirm="kim")


async def test_entries_of_either_policy_are_changed_and_taken_back(shown: Shown) -> None:
    await shown.do("access.user.create", user="eve", password=PASSWORD)
    entry = {"user": "eve", "resources": "Topic:t", "actions": "Pub"}
    for kind in ("Custom", "Default"):
        assert (await shown.do("access.policy.put", **entry, policy_type=kind)).status == 200
    assert {row["policy_type"] for row in (await rows(shown, "?q=User:eve"))["policies"]} == {
        "Custom",
        "Default",
    }
    delete = {"user": "eve", "resource": "Topic:t", "confirm": "eve", "policy_type": "Default"}
    done = await shown.do("access.policy.delete", accept=JSON, **delete)
    assert (done.status, done.json["line"]) == (200, "")
    assert [row["policy_type"] for row in (await rows(shown, "?q=User:eve"))["policies"]] == ["Custom"]
    await shown.do("access.user.delete", user="eve", confirm="eve")


async def test_a_password_is_on_no_page_and_not_in_the_audit_log(shown: Shown) -> None:
    for step in ("preview", "apply"):
        for accept in ("text/html", JSON):
            page = await shown.do("access.user.create", step, accept, user="bob", password=PASSWORD)
            assert PASSWORD not in page.text
    assert (
        PASSWORD not in (await shown.admin.get(f"/c/default/do/access.user.create?password={PASSWORD}")).text
    )
    assert PASSWORD not in shown.state.audit.path.read_text()
    assert "access.user.create" in shown.state.audit.path.read_text()
    await shown.do("access.user.delete", user="bob", confirm="bob")


async def test_only_administrators_see_and_change_users(shown: Shown) -> None:
    for role in (UserRole.VIEWER, UserRole.OPERATOR):
        browser = await shown.browser(role)
        for path in ("access", "access/check", "do/access.user.create"):
            assert (await browser.get(f"/c/default/{path}")).status == 403
        form = {"csrf": await browser.token(), "step": "apply", "user": "eve", "password": PASSWORD}
        assert (await browser.post("/c/default/do/access.user.create", form)).status == 403
    assert "eve" not in [user["name"] for user in (await rows(shown))["users"]]


async def test_who_may_change_only_some_names_may_not_change_users(shown: Shown) -> None:
    person = shown.state.users.person("limited")
    assert person is not None
    browser = Browser(make_app(shown.state))
    browser.cookies["pyromq_console"] = shown.state.sessions.open(person)[0]
    form = {"csrf": await browser.token(), "step": "apply", "user": "ada", "password": PASSWORD}
    assert (await browser.post("/c/default/do/access.user.create", form)).status == 403


async def test_what_brokers_have_differently_is_shown(shown: Shown) -> None:
    (first, *_) = [member.address for member in await shown.cluster.masters()]
    await access.create_user(shown.cluster, [first], "only-a", UserInfo(password=PASSWORD))
    (row,) = (await rows(shown, "?q=only-a"))["users"]
    assert (row["brokers"], row["is_everywhere"]) == (["broker-a"], False)
    await access.delete_user(shown.cluster, [first], "only-a")


async def test_brokers_without_users_say_why() -> None:
    async with aio_cluster() as running, Cluster(running.namesrv) as cluster:
        found = await access_overview.of_cluster(cluster)
        assert found.told == []
        assert "set authenticationEnabled" in found.untold["broker-a"]


async def test_brokers_that_share_a_file_of_users_all_take_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pyromq.audit")
    async with (
        aio_cluster(brokers=2, auth_config_path=tmp_path / "users", **SECURE) as running,
        Cluster(running.namesrv, credentials=ROOT) as cluster,
    ):
        addresses = [member.address for member in await cluster.masters()]
        done = await access.create_user(cluster, addresses, "ada", UserInfo(password=PASSWORD))
        assert list(done) == addresses
    lines = [each.message for each in caplog.records if each.name == "pyromq.audit"]
    assert [re.findall(r"request=\S+ outcome=\S+", line) for line in lines] == [
        ["request=CreateUser outcome=SUCCESS"],
        ["request=UpdateUser outcome=SUCCESS"],
    ]
