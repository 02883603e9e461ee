"""`pyromq mcp` as a process: over its pipes and over HTTP, and the mistakes that stop its start."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from pyromq.apps.mcp import clusters_in, command
from pyromq.errors import ConfigError
from pyromq.testing import RunningCluster
from pyromq.testing.held_ports import held_port

pytest.importorskip("mcp")
pytestmark = pytest.mark.filterwarnings("ignore")

TIMEOUT_S = 60.0


async def test_an_assistant_starts_it_and_talks_over_its_pipes(
    rocketmq: RunningCluster, tmp_path: Path
) -> None:
    from mcp import Client, StdioServerParameters

    path = tmp_path / "mcp.toml"
    path.write_text(f'[clusters.shop]\nnamesrv = "{rocketmq.namesrv}"\n')
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pyromq", "mcp", "--config", str(path), "--audit-log", str(tmp_path / "audit.log")],
        env=dict(os.environ),
    )
    async with asyncio.timeout(TIMEOUT_S), Client(started) as client:
        answer = await client.call_tool("cluster_overview", {})
    assert not answer.is_error
    assert answer.structured_content is not None
    assert answer.structured_content["clusters"] == ["shop"]


def status(url: str, headers: dict[str, str]) -> int:
    try:
        with urlopen(Request(url, b"{}", headers)) as answer:
            return int(answer.status)
    except HTTPError as problem:
        return problem.code


@asynccontextmanager
async def served(rocketmq: RunningCluster, port: int) -> AsyncIterator[str]:
    arguments = ["-m", "pyromq", "mcp", "-n", rocketmq.namesrv, "--http", str(port)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=os.environ | {"PYROMQ_MCP_TOKEN": "t-1"}
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    assert process.returncode is None
                    await asyncio.sleep(0.05)
        writer.close()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


async def test_over_http_it_answers_only_those_who_send_the_token(rocketmq: RunningCluster) -> None:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    def client(headers: dict[str, str]) -> Any:
        return Client(streamable_http_client(url, http_client=create_mcp_http_client(headers)))

    with held_port() as port:
        async with served(rocketmq, port) as url, asyncio.timeout(TIMEOUT_S):
            for headers in ({}, {"Authorization": "Bearer t-2"}):
                assert await asyncio.to_thread(status, url, headers) == 401
            for _ in range(2):  # one after the other, and both at once
                async with (
                    client({"Authorization": "Bearer t-1"}) as one,
                    client({"Authorization": "Bearer t-1"}) as other,
                ):
                    for each in (one, other):
                        assert not (await each.call_tool("list_topics", {})).is_error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "127.0.0.1:9876", "--http", "8765"], "set PYROMQ_MCP_TOKEN"),
        (["-n", "not an address"], "namesrv"),
        (["-n", "127.0.0.1:9876", "--key-file", "/nowhere"], "key_file=/nowhere: expected a readable file"),
        (["--config", __file__, "--tls"], "--config names the clusters"),
    ],
)
def test_a_mistake_stops_the_start(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(command, arguments, env={"PYROMQ_MCP_TOKEN": ""})
    assert result.exit_code == 2
    assert said in result.output


def test_each_cluster_has_its_own_credentials(tmp_path: Path) -> None:
    path, keys = tmp_path / "mcp.toml", tmp_path / "prod.keys"
    keys.write_text("AccessKey=ada\nSecretKey=lovelace\n")
    path.write_text(
        f'[clusters.prod]\nnamesrv = "ns1:9876;ns2:9876"\nkey_file = "{keys}"\ntls = true\n'
        '[clusters.test]\nnamesrv = "ns3:9876"\n'
    )
    found = clusters_in(path)
    assert found["prod"].namesrv == ("ns1:9876", "ns2:9876")
    assert found["prod"].credentials is not None
    assert found["prod"].credentials.access_key == "ada"
    assert found["prod"].tls is not None
    assert (found["test"].credentials, found["test"].tls) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one"),
        ("[clusters", "TOML"),
        ('[clusters.a]\nsecret = "x"', "one of key_file, namesrv, tls, tls_trust"),
        ("[clusters.a]\ntls = true", "namesrv"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mcp.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        clusters_in(path)
