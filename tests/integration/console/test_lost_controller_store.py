"""The controller has lost its store: the overview and mqadmin show that, until the group is known again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.console_browser import Browser
from tests.support.controlled_group import ControlledGroup, controlled_group
from tests.support.replicas import until

from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.console.app import make_app
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.controller.file_store import FileStore
from pyromq.remoting.addresses import format_address

FINE = "No problems found."
UNKNOWN = "has no master that its controller knows"
NEVER: dict[str, Any] = {"controller_poll_ms": 3_600_000, "heartbeat_interval_ms": 3_600_000}
"""These brokers do not notice that their controller has forgotten them."""


class Overview:
    def __init__(self, state: State) -> None:
        self._watch = state.clusters["default"].watch
        self._browser = Browser(make_app(state))

    async def text(self) -> str:
        self._watch.changed_something()
        await self._watch.look()
        page = (await self._browser.get("/c/default/")).text
        return page[page.index('id="problems"') : page.index("</section>")]


@asynccontextmanager
async def overview(group: ControlledGroup, home: Path) -> AsyncIterator[Overview]:
    settings = ConsoleSettings(namesrv_addr=group.names, home=home, anonymous_role="VIEWER")
    state = State(settings, Users(settings.users_file))
    async with state.clusters["default"].cluster, state.clusters["default"].watch:
        yield Overview(state)


async def run(group: ControlledGroup, *words: str) -> tuple[int, str]:
    leader = format_address(*group.controller.address)
    done = await asyncio.to_thread(CliRunner().invoke, mqadmin, [*words, "-a", leader, "--timeout", "60"])
    return done.exit_code, done.output


def wipe(group: ControlledGroup) -> None:
    store = group.controller._store
    assert isinstance(store, FileStore)
    store._stored.clear()


async def test_a_group_that_its_controller_does_not_know_is_a_problem(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group, overview(group, tmp_path / "home") as console:
        for name in "ab":
            await group.start(name, **NEVER)
        await group.settled(2)
        assert FINE in await console.text()
        wipe(group)
        shown = await console.text()
        assert UNKNOWN in shown
        assert FINE not in shown
        code, output = await run(group, "getSyncStateSet", "-b", "broker-a")
        assert code, output
        assert "broker-a" in output


async def test_a_group_that_waits_for_a_broker_names_it_until_an_operator_decides(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group, overview(group, tmp_path / "home") as console:
        for name in "ab":
            await group.start(name, controller_poll_ms=200)
        master = await group.settled(2)
        assert FINE in await console.text()
        kept = await group.stop(master)
        await group.stop_all()
        wipe(group)
        only = await group.start(kept, controller_poll_ms=200)
        session = only.replication.session
        assert session is not None
        await until(lambda: "have not offered their logs yet" in session.problem)
        shown = await console.text()
        assert FINE not in shown
        code, output = await run(group, "getSyncStateSet", "-b", "broker-a")
        assert (code, "brokers [2] have not offered their logs yet" in " ".join(output.split())) == (0, True)
        assert (await run(group, "electMaster", "-c", "DefaultCluster", "-bn", "broker-a", "-b", "1"))[0] == 0
        await until(lambda: only.role.now.is_master)
        async with asyncio.timeout(60):
            while UNKNOWN in await console.text():
                pass
