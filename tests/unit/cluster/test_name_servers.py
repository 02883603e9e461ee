"""One name server after another."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pyromq.cluster.aio import ask
from pyromq.cluster.name_servers import NameServers, as_listed, name_server_addresses
from pyromq.errors import CallTimeout, ConnectFailed, PyroError, Refused, RemoteProtocolError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import GetRoute, GetRouteAnswer, TopicRouteData

QUESTION = GetRoute(topic="t")
ANSWER = GetRouteAnswer(body=TopicRouteData())


class Network:
    """Answers for every address, unless it is told how to fail."""

    def __init__(self) -> None:
        self.problems: dict[str, PyroError] = {}
        self.asked: list[str] = []
        self.times: list[float] = []

    async def call(self, address: str, request: Any, timeout_s: float) -> Any:
        self.asked.append(address)
        self.times.append(timeout_s)
        if address in self.problems:
            raise self.problems[address]
        return ANSWER


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        (" a:1 ; b:2;", ("a:1", "b:2")),
        ("http://a:1", ("a:1",)),
        ("http://host/path/a:1;b:2", ("a:1", "b:2")),
        ("", ()),
    ],
)
def test_addresses_of_name_servers(given: str, addresses: tuple[str, ...]) -> None:
    assert name_server_addresses(given) == addresses


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def servers() -> NameServers:
    return NameServers(["a:1", "b:1", "c:1"], as_listed)


async def test_the_same_one_is_asked_until_it_fails(network: Network, servers: NameServers) -> None:
    for _ in range(3):
        assert await ask(servers, network.call, QUESTION, 3) is ANSWER
    assert network.asked == ["a:1"] * 3
    network.problems["a:1"] = ConnectFailed("down")
    await ask(servers, network.call, QUESTION, 3)
    await ask(servers, network.call, QUESTION, 3)
    assert network.asked[3:] == ["a:1", "b:1", "b:1"]
    del network.problems["a:1"]
    await ask(servers, network.call, QUESTION, 3)
    assert servers.current == "b:1", "one that came back is not preferred"


@pytest.mark.parametrize(
    "problem",
    [
        ConnectFailed("down"),
        CallTimeout("silent"),
        Refused(ResponseCode.SYSTEM_ERROR, "not ready"),
        Refused(ResponseCode.SYSTEM_BUSY),
        RemoteProtocolError("nonsense"),
    ],
    ids=str,
)
async def test_every_one_is_asked_once_and_the_last_problem_told(
    network: Network, servers: NameServers, problem: PyroError
) -> None:
    network.problems = dict.fromkeys(("a:1", "b:1", "c:1"), problem)
    with pytest.raises(type(problem)):
        await ask(servers, network.call, QUESTION, 3)
    assert network.asked == ["a:1", "b:1", "c:1"]
    assert servers.current == "a:1"


async def test_an_answer_about_the_topic_is_an_answer(network: Network, servers: NameServers) -> None:
    network.problems["a:1"] = Refused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    with pytest.raises(Refused, match="no such topic"):
        await ask(servers, network.call, QUESTION, 3)
    assert network.asked == ["a:1"]
    assert servers.current == "a:1"


async def test_a_silent_one_leaves_time_for_the_others(network: Network, servers: NameServers) -> None:
    network.problems = {"a:1": CallTimeout("silent"), "b:1": CallTimeout("silent")}
    await ask(servers, network.call, QUESTION, 3)
    assert network.times == pytest.approx([1.0, 1.5, 3.0], abs=0.5)


async def test_without_any_address_the_question_fails(network: Network) -> None:
    with pytest.raises(ConnectFailed, match="no name server address is known"):
        await ask(NameServers([]), network.call, QUESTION, 3)


@pytest.mark.parametrize(
    ("wanted", "changed", "current"),
    [
        (["c:1", "b:1", "a:1"], False, "a:1"),
        (["d:1", "a:1"], True, "a:1"),
        (["d:1", "e:1"], True, "d:1"),
        (["b:1", "b:1"], True, "b:1"),
    ],
)
def test_the_list_can_change(servers: NameServers, wanted: list[str], changed: bool, current: str) -> None:
    assert servers.update(wanted) is changed
    assert servers.current == current
    assert set(servers.addresses) == set(wanted)
    assert len(servers.addresses) == len(set(wanted))
    assert str(servers) == ";".join(sorted(set(wanted)))


async def test_callers_that_fail_together_move_on_once(servers: NameServers) -> None:
    release = asyncio.Event()

    async def slow(address: str, request: Any, timeout_s: float) -> Any:
        if address == "a:1":
            await release.wait()
            raise ConnectFailed("down")
        return ANSWER

    calls = [asyncio.create_task(ask(servers, slow, QUESTION, 3)) for _ in range(5)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*calls)
    assert servers.current == "b:1"


def test_many_clients_spread_over_the_list() -> None:
    reverse: Callable[[list[str]], None] = list.reverse
    assert NameServers(["a:1", "b:1"], reverse).current == "b:1"
