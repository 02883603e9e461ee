"""Lists are ordered once for all viewers of a snapshot, and pages are made one after the other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_browser import Browser
from tests.support.told_cluster import ToldBroker, ToldCluster

from pyromq.clock import SystemClock
from pyromq.console.app import make_app
from pyromq.console.clusters import ShownCluster
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.remoting.slices import Slices


class Scene:
    def __init__(self, state: State, broker: ToldBroker) -> None:
        self.state = state
        self.broker = broker
        self.shown: ShownCluster = state.clusters["default"]
        self.browser = Browser(make_app(state))

    async def look(self) -> None:
        self.shown.watch.changed_something()
        await self.shown.watch.look()

    async def names(self, query: str = "") -> list[str]:
        page: Any = await self.browser.get(f"/c/default/topics{query}", accept="application/json")
        return [topic["name"] for topic in page.json["topics"]]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    broker = ToldBroker("a")
    for number in range(60):
        broker.add_topic(f"t{number:02}", queues=60 - number)
    async with ToldCluster(broker) as told:
        settings = ConsoleSettings(namesrv_addr=told.namesrv, home=tmp_path, anonymous_role="VIEWER")
        scene = Scene(State(settings, Users(settings.users_file)), broker)
        async with scene.shown.cluster, scene.shown.watch:
            await scene.look()
            yield scene


async def test_each_sort_filter_and_page_is_its_own(scene: Scene) -> None:
    first = [f"t{number:02}" for number in range(50)]
    assert await scene.names() == first
    assert await scene.names("?page=2") == [f"t{number}" for number in range(50, 60)]
    assert (await scene.names("?sort=-name"))[0] == "t59"
    assert (await scene.names("?sort=queues"))[0] == "t59"
    assert await scene.names("?q=T4&size=3") == ["t40", "t41", "t42"]
    assert await scene.names("?q=t4&sort=-name&size=1") == ["t49"]
    assert await scene.names() == first


async def test_topics_with_traffic_or_lag_come_first(scene: Scene) -> None:
    scene.broker.read["t30", "shop"] = {0: (9, 4)}
    scene.broker.read["t40", "shop"] = {0: (9, 9)}
    scene.broker.read["t50", "shop"] = {0: (9, 8)}
    await scene.look()
    assert (await scene.names())[:3] == ["t30", "t50", "t00"]


async def test_what_is_unknown_comes_last_in_either_direction(scene: Scene) -> None:
    scene.broker.read["t30", "shop"] = {0: (9, 4)}
    await scene.look()
    assert (await scene.names("?sort=lag"))[0] == "t30"
    assert (await scene.names("?sort=-lag"))[0] == "t30"


async def test_the_next_snapshot_is_ordered_again(scene: Scene) -> None:
    assert (await scene.names("?sort=-name"))[0] == "t59"
    scene.broker.add_topic("t99")
    await scene.look()
    assert (await scene.names("?sort=-name"))[0] == "t99"


async def test_a_list_is_made_once_for_each_snapshot_and_few_are_kept(scene: Scene) -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(len(made))
        return [len(made)]

    assert [scene.shown.kept_list(key, make) for key in ("a", "a", "b", "a")] == [[1], [1], [2], [1]]
    for number in range(1000):
        scene.shown.kept_list(("q", number), lambda: [0])
    assert len(scene.shown._kept) <= 100


class HastyClock(SystemClock):
    """Every look at it takes a millisecond, so that a slice is soon over."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks / 1000


async def test_pages_that_are_asked_for_together_are_made_in_turns(scene: Scene) -> None:
    scene.state.turns = Slices(HastyClock())
    found = await asyncio.gather(*(scene.names(f"?q=t{number}") for number in range(6)))
    assert [names[0] for names in found] == ["t00", "t10", "t20", "t30", "t40", "t50"]
    assert scene.state.turns.pauses > 0


async def test_a_long_page_is_made_in_many_turns_and_is_the_same_page(scene: Scene) -> None:
    whole = (await scene.browser.get("/c/default/topics?size=60")).text
    scene.state.turns = Slices(HastyClock())
    browser = Browser(make_app(scene.state))
    assert (await browser.get("/c/default/topics?size=60")).text == whole
    assert scene.state.turns.pauses > 3


async def test_an_old_snapshot_is_let_go_and_what_did_not_change_is_not_made_again(scene: Scene) -> None:
    await scene.names("?sort=-name")
    before = scene.shown.snapshot
    topic = before.topics["t00"]
    await scene.look()
    assert scene.shown.snapshot.topics["t00"].brokers is topic.brokers
    assert scene.shown._kept == {}
    assert len(before.topics) == 60, "a page that still shows it loses nothing"


async def test_a_join_that_began_earlier_does_not_replace_a_newer_snapshot(scene: Scene) -> None:
    watch = scene.shown.watch
    early = asyncio.create_task(watch.publish())
    await asyncio.sleep(0)  # it has begun, with what was known
    scene.broker.add_topic("t99")
    await scene.look()
    await early
    assert "t99" in watch.snapshot.topics
