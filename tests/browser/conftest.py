"""Browser tests: Debian's Chromium through Playwright; without it they are skipped, with the reason."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools.chromium import Unavailable, axe, chromium, require_playwright


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        require_playwright()
        chromium()
        axe()
    except Unavailable as reason:
        for item in items:
            if item.get_closest_marker("browser") is not None:
                item.add_marker(pytest.mark.skip(reason=str(reason)))


@pytest.fixture(scope="module")
def chromium_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Only for root, which has no sandbox of its own in a container.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium_browser: Any) -> Iterator[Callable[..., Any]]:
    """A page that fails the test for errors, forbidden content and requests to anywhere else."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def opened(base: str, **options: Any) -> Any:
        context = chromium_browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on(
            "console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(base) else troubles.append(f"foreign {request.url}")
            ),
        )
        page.troubles = troubles
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []
