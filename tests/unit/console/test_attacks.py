"""What strangers and viewers try at the console: sessions, forged names and forms, other hosts, and load."""

import ipaddress
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.console_browser import CHEAP_HASHES, Browser
from tests.support.echo_service import Echo, EchoService
from tests.support.serving import serving
from tests.unit.console.test_app import PASSWORD, logged_in, state_in

from pyromq.admin.cluster import Cluster
from pyromq.console.app import make_app
from pyromq.console.guarded import GuardedCluster
from pyromq.console.security.roles import UserRole
from pyromq.console.tailing import MAX_READERS, TailFilter
from pyromq.errors import ConnectFailed


@pytest.fixture(scope="module", autouse=True)
def cheap_hashes() -> Iterator[None]:
    with CHEAP_HASHES:
        yield


async def test_a_session_that_an_attacker_planted_is_not_the_one_after_the_log_in(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    attacker = await logged_in(state, UserRole.VIEWER)
    planted = dict(attacker.cookies)
    token = await attacker.token()
    for cookie in (planted["pyromq_console"], "made-up"):
        victim = Browser(make_app(state))
        victim.cookies["pyromq_console"] = cookie
        await victim.log_in("admin", PASSWORD)
        assert victim.cookies["pyromq_console"] != cookie
        # What the attacker knows leads nowhere: neither the cookie nor the token of its forms.
        known = Browser(make_app(state))
        known.cookies["pyromq_console"] = cookie
        assert (await known.get("/me")).status == 303
        form = {"csrf": token, "step": "apply", "topic": "t"}
        assert (await victim.post("/c/default/do/topics.put", form)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"x_user": "admin"},
        {"x_user": "viewer, admin"},
        {"x_user": " admin "},
        {"x_user": "ADMIN"},
        {"x_forwarded_user": "admin"},
        {"forwarded": "for=127.0.0.1", "x_user": "admin"},
        {"x_forwarded_for": "127.0.0.1", "x_user": "admin"},
    ],
)
async def test_who_does_not_come_through_the_proxy_names_nobody(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    state = state_in(
        tmp_path, trusted_proxies="192.0.2.1", user_header="X-User", allowed_hosts="console.example"
    )
    for client in ("127.0.0.1", "192.0.2.7", ""):
        stranger = Browser(make_app(state), host="console.example", client=client)
        assert (await stranger.get("/me", **headers)).status == 303
        assert (await stranger.get_json("/c/default/", **headers)).status == 401


async def test_a_second_log_in_gives_no_more_tails_and_queries(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    person = state.users.person("viewer")
    assert person is not None
    sessions = [state.sessions.open(person)[1] for _ in range(3)]
    other = state.sessions.open(state.users.person("admin") or person)[1]
    with sessions[0].one_more("tails", 2), sessions[1].one_more("tails", 2):
        assert sessions[2].running["tails"] == 2
        assert not other.running


async def test_at_the_limit_of_all_readers_another_tail_is_refused(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    browser = await logged_in(state)
    async with Cluster("127.0.0.1:9", timeout_s=0.2) as cluster:
        with ExitStack() as watched:
            for number in range(MAX_READERS):
                watched.enter_context(state.readers.watching(cluster, TailFilter("default", (f"t{number}",))))
            assert state.readers.has_room(TailFilter("default", ("t0",)))
            assert (await browser.get("/c/default/topics/another/tail/stream")).status == 429
            assert len(state.readers) == MAX_READERS
        await state.readers.stop()


async def test_a_name_that_leads_to_a_forbidden_address_is_not_asked() -> None:
    """A broker registers under any name; this one leads to where clouds have their secrets."""
    forbidden = property(lambda address: address.is_loopback)
    service = EchoService()
    async with serving(service) as server, GuardedCluster("192.0.2.1:9876") as cluster:
        port = server.address[1]
        with patch.object(ipaddress.IPv4Address, "is_link_local", forbidden):
            for host in ("127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1"):
                with pytest.raises(ConnectFailed, match="link-local"):
                    await cluster.ask(f"{host}:{port}", Echo(), 10)
        assert service.callers == []
