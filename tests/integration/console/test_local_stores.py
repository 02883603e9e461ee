"""Stores on the console's machine: administrators see what they hold, and have them verified."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_browser import Browser
from tests.support.replicas import until
from tests.support.small_stores import append, dispatch_all, small_settings

from pyromq.clock import ManualClock
from pyromq.console.app import make_app
from pyromq.console.security.roles import UserRole
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.store.message_store import MessageStore

PAGE = "/c/default/brokers/stores"


def state_in(home: Path, stores: str) -> State:
    settings = ConsoleSettings(namesrv_addr="127.0.0.1:9", home=home, local_stores=stores)
    users = Users(settings.users_file)
    for role in UserRole:
        users.put(role.word, "correct horse battery", role)
    return State(settings, users)


def browser(state: State, role: UserRole) -> Browser:
    made = Browser(make_app(state))
    person = state.users.person(role.word)
    assert person is not None
    made.cookies["pyromq_console"] = state.sessions.open(person)[0]
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with MessageStore.open(small_settings(root), clock=ManualClock(), start_flusher=False) as store:
        for number in range(10):
            append(store, b"%d" % number)
        dispatch_all(store)
    return root


async def test_a_store_is_summed_up_and_verified_behind_the_page(root: Path, tmp_path: Path) -> None:
    state = state_in(tmp_path, f"{root}, {tmp_path / 'nowhere'}")
    admin = browser(state, UserRole.ADMIN)
    found, missing = (await admin.get_json(PAGE)).json["stores"]
    assert (found["summary"]["messages"], found["verification"]) == (10, None)
    assert (missing["summary"], "is not a store" in missing["problem"]) == (None, True)
    form: dict[str, Any] = {"csrf": await admin.token(), "step": "apply", "directory": str(root)}
    done = await admin.post("/c/default/do/stores.verify", form)
    assert done.status == 200, done
    await until(lambda: not state.store_jobs.verifications[root].is_running)
    text = (await admin.get(PAGE)).text
    assert "No damage found." in text
    assert "10 records" in text
    written = [each.what for each in state.audit.newest_first(10)]
    assert "stores.verify" in written
    await state.store_jobs.stop()


async def test_only_administrators_see_them_and_only_those_of_the_settings(
    root: Path, tmp_path: Path
) -> None:
    state = state_in(tmp_path, "")
    assert (await browser(state, UserRole.OPERATOR).get(PAGE)).status == 403
    admin = browser(state, UserRole.ADMIN)
    assert "localStores" in (await admin.get(PAGE)).text
    form = {"csrf": await admin.token(), "step": "preview", "directory": str(root)}
    refused = await admin.post("/c/default/do/stores.verify", form)
    assert refused.status == 400
    assert "one of the stores that the settings name" in refused.text


async def test_a_verification_that_goes_on_is_not_started_twice_and_ends_with_the_console(
    root: Path, tmp_path: Path
) -> None:
    jobs = state_in(tmp_path, str(root)).store_jobs
    first = jobs.verify(root, "ada")
    assert jobs.verify(root, "bob") is first
    await asyncio.sleep(0)  # it begins
    await jobs.stop()
    assert not first.is_running
