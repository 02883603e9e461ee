"""Logging in at a provider on another site, in a real browser: its rules about cookies decide who is in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_thread import console_thread
from tests.support.openid_provider import CLIENT, SECRET, openid_provider

pytestmark = pytest.mark.browser


def test_a_browser_is_logged_in_when_it_comes_back_from_the_provider(
    tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    with openid_provider("") as provider:
        provider.asks_first = True
        provider.user = {"sub": "1", "preferred_username": "ada", "groups": ["staff"]}
        settings: dict[str, Any] = {
            "oidc_issuer": provider.url,
            "oidc_client_id": CLIENT,
            "oidc_client_secret": SECRET,
            "oidc_roles": "staff=operator",
        }
        with console_thread(tmp_path, **settings) as console:
            # The provider is at 127.0.0.1: to a browser, that is another site.
            at = console.url.replace("127.0.0.1", "localhost")
            provider.allow(f"{at}/login/oidc/callback")
            page = open_page("http://")
            page.set_default_timeout(60_000)
            page.goto(f"{at}/me")
            page.get_by_role("link", name="single sign-on").click()
            page.get_by_role("link", name="I agree").click()
            page.wait_for_url(f"{at}/me")
            page.locator("main", has_text="ada").wait_for()
            page.goto(f"{at}/c/default/topics")
            assert page.url == f"{at}/c/default/topics"
            # A page that is still open would ask a server that is not there any more.
            page.close()
