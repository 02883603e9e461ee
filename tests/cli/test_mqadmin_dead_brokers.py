"""A broker that is registered and does not answer: overviews show what there is, and say what is missing."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.name_servers import Peer, name_server, register_broker

from pyromq.cli.mqadmin.tree import mqadmin


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """A name server that knows one broker, at a port where nobody listens."""
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with name_server(tmp_path) as server, Peer(server) as broker:
            await broker.call(register_broker("dead", topics=["t", "%RETRY%g"], broker_addr=address))
            yield broker.address


async def run(namesrv: str, *words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, mqadmin, [*words, "-n", namesrv])


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["clusterList"], '"brokerName": "dead"'),
        (["consumerProgress"], '"group": "g"'),
        (["topicList", "-c"], '"topic": "t"'),
        (["statsAll"], "[]"),
        (["brokerStatus", "-c", "c"], "null"),
        (["brokerStatus", "-c", "c", "--watch", "0.01", "--rounds", "2"], '"activated":false'),
    ],
    ids=" ".join,
)
async def test_an_overview_says_that_it_is_not_everything(namesrv: str, words: list[str], shown: str) -> None:
    done = await run(namesrv, *words, "--json")
    assert done.exit_code == 1
    assert shown in done.stdout
    json.loads(done.stdout if "--watch" not in words else done.stdout.splitlines()[-1])
    assert done.stderr.startswith("Error: the result is incomplete")
    assert "is a server running there? `mqadmin clusterList` shows the brokers" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["topicStatus", "checkMsgSendRT", "printMsg"])
async def test_whoever_needs_the_broker_says_where_it_should_be(namesrv: str, command: str) -> None:
    done = await run(namesrv, command, "-t", "t")
    assert done.exit_code == 1
    assert "`mqadmin clusterList` shows" in done.stderr
    assert "Connect call failed" in done.stderr


async def test_a_broker_that_does_not_answer_has_no_figures(namesrv: str) -> None:
    told = json.loads((await run(namesrv, "clusterList", "--json")).stdout)["brokers"][0]
    assert (told["in"], told["timer"], told["space"], told["activated"]) == (None, None, None, False)
    [_, row] = (await run(namesrv, "clusterList")).stdout.splitlines()
    assert re.fullmatch(r"c +dead +0 +127\.0\.0\.1:\d+ +false", row)
