"""Logging in by OpenID Connect, with a real provider: authlib's server, over HTTP."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.console_browser import CHEAP_HASHES, Browser, Page
from tests.support.openid_provider import CLIENT, SECRET, OpenIdProvider, openid_provider

from pyromq.console.app import make_app
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State

CALLBACK = "http://127.0.0.1:8088/login/oidc/callback"
ADA = {"sub": "1", "preferred_username": "ada", "groups": ["staff", "mq-team"]}


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with openid_provider(CALLBACK) as running:
        running.user = ADA
        yield running


@asynccontextmanager
async def _console(home: Path, provider: OpenIdProvider, **settings: Any) -> AsyncIterator[State]:
    chosen = {
        "home": home,
        "oidc_issuer": provider.url,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        **settings,
    }
    state = State(ConsoleSettings(**chosen), Users(home / "users.json"))
    await state.open()
    try:
        yield state
    finally:
        await state.close()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


async def _consent(page: Page) -> str:
    """What the person does at the provider; the address that it leads back to."""
    assert page.status == 303, page
    opener = urllib.request.build_opener(_Stay)
    with pytest.raises(urllib.error.HTTPError) as led:
        await asyncio.to_thread(opener.open, page.headers["location"])
    assert led.value.code == 302, led.value.read()
    back = str(led.value.headers["Location"])
    led.value.close()
    assert back.startswith(CALLBACK)
    return back.removeprefix("http://127.0.0.1:8088")


async def _log_in(browser: Browser, next_path: str = "/me") -> Page:
    return await browser.get(await _consent(await browser.get(f"/login/oidc?next={next_path}")))


async def test_a_person_of_the_provider_gets_the_role_of_a_group(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    roles = "mq-admins=admin,mq-team=operator+bodies,staff=viewer"
    async with _console(tmp_path, provider, oidc_roles=roles) as state:
        browser = Browser(make_app(state))
        assert "/login/oidc?next=%2Fme" in (await browser.get("/login?next=/me")).text
        page = await _log_in(browser)
        assert (page.status, page.headers["refresh"]) == (200, "0; url=/me")
        me = (await browser.get_json("/me")).json
        assert (me["name"], me["role"]) == ("ada", "operator")
        assert (await browser.get("/audit")).status == 403
        entry = state.audit.newest_first(1)[0]
        assert (entry.who, entry.what, entry.outcome) == ("ada", "login.oidc", "ok")
        assert not [name for name in browser.cookies if name.endswith("_oidc")]


async def test_without_groups_the_role_is_that_of_the_users_file(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    async with _console(tmp_path, provider) as state:
        browser = Browser(make_app(state))
        page = await _log_in(browser)
        assert (page.status, "ada has no role here." in page.text) == (401, True)
        assert (await browser.get_json("/me")).status == 401
        assert state.audit.newest_first(1)[0].outcome == "refused"
        with CHEAP_HASHES:
            state.users.put("ada", "a long password", UserRole.ADMIN)
        assert (await _log_in(browser)).status == 200
        assert (await browser.get("/audit")).status == 200


async def test_claims_may_come_from_userinfo_and_have_a_path(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    provider.in_userinfo = {"realm_access": {"roles": ["mq"]}}
    async with _console(
        tmp_path, provider, oidc_roles="mq=admin", oidc_roles_claim="realm_access.roles"
    ) as state:
        browser = Browser(make_app(state))
        assert (await _log_in(browser)).status == 200
        assert (await browser.get("/audit")).status == 200
        provider.in_userinfo["sub"] = "somebody else"
        assert (await _log_in(Browser(make_app(state)))).status == 401


async def test_a_key_that_the_provider_has_changed_is_fetched(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    async with _console(tmp_path, provider, oidc_roles="staff=viewer") as state:
        assert (await _log_in(Browser(make_app(state)))).status == 200
        provider.new_key()
        assert (await _log_in(Browser(make_app(state)))).status == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "http://127.0.0.1:1"},
        {"aud": ["another client"]},
        {"nonce": "of another log-in"},
        {"exp": 1_000_000_000},
        {"iat": 4_000_000_000},
        {"azp": "another client"},
        {"at_hash": "of another token"},
        {"preferred_username": ""},
        {"preferred_username": "a\nb"},
    ],
    ids=str,
)
async def test_a_token_with_a_wrong_claim_lets_nobody_in(
    tmp_path: Path, provider: OpenIdProvider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    async with _console(tmp_path, provider, oidc_roles="staff=admin") as state:
        browser = Browser(make_app(state))
        page = await _log_in(browser)
        assert page.status == 401
        assert (await browser.get_json("/me")).status == 401


async def test_a_code_counts_once_and_only_in_the_browser_that_asked_for_it(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    async with _console(tmp_path, provider, oidc_roles="staff=admin") as state:
        app = make_app(state)
        victim, attacker = Browser(app), Browser(app)
        stolen = await _consent(await victim.get("/login/oidc"))
        assert (await attacker.get(stolen)).status == 401
        await attacker.get("/login/oidc")
        assert (await attacker.get(stolen)).status == 401
        kept = dict(victim.cookies)
        assert (await victim.get(stolen)).status == 200
        again = Browser(app)
        again.cookies = kept
        assert (await again.get(stolen)).status == 401
        assert (await again.get_json("/me")).status == 401


async def test_who_is_refused_by_the_provider_reads_so(tmp_path: Path, provider: OpenIdProvider) -> None:
    provider.user = None
    async with _console(tmp_path, provider, oidc_roles="staff=admin") as state:
        page = await _log_in(Browser(make_app(state)))
        assert (page.status, "access_denied" in page.text) == (401, True)


async def test_a_log_in_leads_to_no_other_site(tmp_path: Path, provider: OpenIdProvider) -> None:
    async with _console(tmp_path, provider, oidc_roles="staff=admin") as state:
        page = await _log_in(Browser(make_app(state)), "//evil.example/")
        assert page.headers["refresh"] == "0; url=/"


async def test_what_the_provider_is_asked_for_has_a_challenge_and_no_secret(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    async with _console(tmp_path, provider, oidc_scopes="openid groups") as state:
        browser = Browser(make_app(state))
        page = await browser.get("/login/oidc")
        asked = {name: value for name, (value,) in parse_qs(urlsplit(page.headers["location"]).query).items()}
        assert (asked["scope"], asked["code_challenge_method"]) == ("openid groups", "S256")
        assert asked["redirect_uri"] == CALLBACK
        assert SECRET not in page.headers["location"]
        (cookie,) = [line for line in page.cookies if "_oidc=" in line]
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()


async def test_a_provider_that_does_not_answer_says_so_and_passwords_still_work(
    tmp_path: Path, provider: OpenIdProvider
) -> None:
    async with _console(tmp_path, provider, oidc_issuer="http://127.0.0.1:1") as state:
        browser = Browser(make_app(state))
        page = await browser.get("/login/oidc")
        assert (page.status, "does not answer" in page.text) == (502, True)
        with CHEAP_HASHES:
            state.users.put("ada", "a long password", UserRole.VIEWER)
            assert (await browser.log_in("ada", "a long password")).status == 303


async def test_without_a_provider_there_is_no_such_page(tmp_path: Path) -> None:
    state = State(ConsoleSettings(home=tmp_path), Users(tmp_path / "users.json"))
    browser = Browser(make_app(state))
    for path in ("/login/oidc", "/login/oidc/callback?code=x"):
        assert (await browser.get(path)).status == 404
    assert "single sign-on" not in (await browser.get("/login")).text
