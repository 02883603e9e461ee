"""The tokens of a model in a real browser: a page that is reloaded has all of them, once."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from tests.support.front import SharedFront, front_in_thread

pytestmark = pytest.mark.browser

EXAMPLE = Path(__file__).parents[2] / "examples" / "streamed_tokens.py"
WHOLE = "Four fleets of ferries follow foggy fjords for fish, and not one of them is ever late. "


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    settings = {"http_enable": True, "http_allowed_origins": "*", "http_ping_seconds": 1}
    with front_in_thread(settings=settings, light_queues=True, multi_dispatch=True) as started:
        with ThreadPoolExecutor() as apart:  # Playwright has the loop of this thread
            apart.submit(asyncio.run, started.create_topic("Answers", "LITE")).result()
        yield started


@pytest.fixture
def page(running: SharedFront, open_page: Callable[..., Any]) -> Iterator[Any]:
    with Popen([sys.executable, str(EXAMPLE), running.target], stdout=PIPE, text=True) as example:
        assert example.stdout is not None
        opened = open_page("http://127.0.0.1:")
        opened.goto(example.stdout.readline().strip())
        yield opened
        opened.close()
        example.kill()


def _wait_for(page: Any, script: str) -> None:
    page.wait_for_function(script, timeout=60_000)


def test_a_page_that_is_reloaded_goes_on_where_it_was(page: Any) -> None:
    page.click("#ask")
    for words in (3, 6):
        _wait_for(page, f"document.getElementById('answer').textContent.split(' ').length > {words}")
        page.reload()
    _wait_for(page, "document.getElementById('state').textContent == 'done'")
    assert page.locator("#answer").text_content() == WHOLE
    page.reload()
    _wait_for(page, "document.getElementById('answer').textContent.length > 0")
    assert page.locator("#answer").text_content() == WHOLE


def test_the_button_stops_the_model(page: Any) -> None:
    page.click("#ask")
    _wait_for(page, "document.getElementById('answer').textContent.split(' ').length > 2")
    page.click("#stop")
    _wait_for(page, "document.getElementById('state').textContent == 'stopped'")
    shown = page.locator("#answer").text_content()
    assert WHOLE.startswith(shown)
    assert len(shown) < len(WHOLE)
