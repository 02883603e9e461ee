"""The console's access pages at Apache's brokers: 5.x has users and policies, 4.9 tells nothing of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_4, APACHE_5, Release
from tests.support.console_browser import JSON, Browser
from tests.support.name_servers import name_server

from pyromq.console.app import make_app
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.remoting.addresses import format_address

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

KEY, SECRET, PASSWORD = "RocketMQ", "12345678", "the password of ada"
_AUTH = "org.apache.rocketmq.auth"
SECURE = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": KEY, "secretKey": SECRET}),
}


@asynccontextmanager
async def administrator(
    release: Release, home: Path, settings: dict[str, str], **keys: Any
) -> AsyncIterator[Browser]:
    """The browser of a console that looks at a broker of Apache."""
    async with name_server(home / "names") as names:
        namesrv = format_address(*names.address)
        broker = ApacheBroker(release, namesrv, home / "store", settings=settings)
        await asyncio.to_thread(broker.start)
        try:
            users = Users(home / "users.json")
            users.put("admin", PASSWORD, UserRole.ADMIN)
            # A busy machine is no reason to be refused.
            chosen = ConsoleSettings(namesrv_addr=namesrv, home=home, timeout_seconds=60, **keys)
            state = State(chosen, users)
            browser = Browser(make_app(state))
            person = users.person("admin")
            assert person is not None
            browser.cookies["pyromq_console"] = state.sessions.open(person)[0]
            shown = state.clusters["default"]
            async with shown.cluster:
                while not await shown.cluster.members():  # noqa: ASYNC110 (a name server tells nobody)
                    await asyncio.sleep(0.1)
                yield browser
        finally:
            await asyncio.to_thread(broker.kill)


async def test_users_and_policies_of_an_apache_broker_are_shown_and_changed(tmp_path: Path) -> None:
    async with administrator(APACHE_5, tmp_path, SECURE, access_key=KEY, secret_key=SECRET) as admin:
        token = await admin.token()

        async def do(operation: str, **fields: str) -> Any:
            form = {"csrf": token, "step": "apply", **fields}
            page = await admin.post(f"/c/default/do/{operation}", form, accept=JSON)
            assert page.status == 200, page
            return page.json

        async def shown(query: str) -> Any:
            page = await admin.get_json(f"/c/default/access?q={query}")
            assert page.status == 200, page
            return page.json

        first = await shown("")
        assert (first["told"], first["untold"]) == (["broker-a"], {})
        assert [(user["name"], user["type"]) for user in first["users"]] == [(KEY, "Super")]
        await do("access.user.create", user="ada", password=PASSWORD)
        await do(
            "access.policy.put", user="ada", resources="Topic:orders*", actions="Pub,Sub", decision="Allow"
        )
        found = await shown("ada")
        assert [(user["name"], user["type"], user["status"]) for user in found["users"]] == [
            ("ada", "Normal", "enable")
        ]
        assert [(row["resource"], sorted(row["actions"])) for row in found["policies"]] == [
            ("Topic:orders*", ["Pub", "Sub"])
        ]
        asked = "/c/default/access/check?user=ada&action=Pub&resource=Topic:orders1&from=10.0.0.1"
        (decision,) = (await admin.get_json(asked)).json["decisions"]
        assert (decision["broker"], decision["isAllowed"]) == ("broker-a", True)
        await do("access.user.change", user="ada", user_status="disable")
        assert (await shown("ada"))["users"][0]["status"] == "disable"
        (decision,) = (await admin.get_json(asked)).json["decisions"]
        assert decision["isAllowed"] is False
        await do("access.policy.delete", user="ada", resource="Topic:orders*", confirm="ada")
        await do("access.user.delete", user="ada", confirm="ada")
        assert (await shown("ada"))["users"] == []


async def test_a_broker_that_tells_no_users_is_named_with_its_reason(tmp_path: Path) -> None:
    async with administrator(APACHE_4, tmp_path, {}) as admin:
        page = await admin.get_json("/c/default/access")
        assert page.status == 200, page
        assert (page.json["told"], list(page.json["untold"])) == ([], ["broker-a"])
        assert page.json["untold"]["broker-a"]
        assert "<table" not in (await admin.get("/c/default/access")).text
