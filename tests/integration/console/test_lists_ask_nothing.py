"""Requests to the cluster, counted where they arrive: opening any list asks nothing, however many open it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.console_browser import Browser
from tests.support.told_cluster import ToldBroker, ToldCluster

from pyromq.console.app import make_app
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State

LISTS = (
    "/",
    "/c/default/",
    "/c/default/topics",
    "/c/default/topics?q=orders-1&sort=-in&page=2",
    "/c/default/topics?sort=-lag&system=1",
    "/c/default/groups",
    "/c/default/groups?sort=-age",
    "/c/default/dlq",
    "/c/default/brokers",
)


@pytest.fixture
async def told() -> AsyncIterator[ToldCluster]:
    brokers = [ToldBroker(f"broker-{number}") for number in range(2)]
    for broker in brokers:
        for number in range(40):
            broker.add_topic(f"orders-{number}")
            broker.read[f"orders-{number}", f"shop-{number}"] = {0: (9, 4)}
    async with ToldCluster(*brokers) as told:
        yield told


@pytest.mark.parametrize("path", LISTS)
async def test_opening_a_list_asks_nothing(told: ToldCluster, tmp_path: Path, path: str) -> None:
    settings = ConsoleSettings(namesrv_addr=told.namesrv, home=tmp_path, anonymous_role="VIEWER")
    state = State(settings, Users(settings.users_file))
    shown = state.clusters["default"]
    # Not `state.open()`: nothing but this test has the poller look.
    async with shown.cluster, shown.watch:
        await shown.watch.look()
        asked = told.requests
        for viewer in range(3):
            for language in ("en", "zh"):
                page = await Browser(make_app(state), client=f"127.0.0.{viewer + 1}").get(
                    path, **{"accept-language": language}
                )
                assert page.status == 200, page
        assert (await Browser(make_app(state)).get(path, accept="application/json")).status == 200
        assert told.requests == asked
