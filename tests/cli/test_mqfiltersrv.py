"""mqfiltersrv, and filter servers that mqbroker starts, as an operator meets them."""

import asyncio
import logging
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from tests.support.broker_cluster import TIMEOUT_S, TOPIC, configuration, message, pull, topic_creation
from tests.support.filter_server import CLASS_FILTER, confined, upload
from tests.support.loop import turn_until
from tests.support.server_programs import BROKER, FILTER_SERVER, NAME_SERVER

from pyromq.apps import filter_servers_beside
from pyromq.broker.broker import Broker
from pyromq.errors import Refused
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.dialer import Dialer

QUIET = ("--log-dir", "", "-o", "bindAddress=127.0.0.1")
BROKERS_FILE = """
brokerName=broker-a
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=0
storePathRootDir={store}
filterServerNums=1
clientUploadFilterClassEnable=true
logDir=
"""


def test_help_names_every_option(tmp_path: Path) -> None:
    done = FILTER_SERVER.run(tmp_path, "-h")
    assert done.returncode == 0
    for option in ("-c,", "-p,", "-h,", "-o,", "--port", "--log-dir", "--broker"):
        assert option in done.stdout


def test_it_takes_its_settings_from_the_brokers_file_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(BROKERS_FILE.format(store=tmp_path).replace("listenPort=0", "listenPort=10951"))
    done = FILTER_SERVER.run(tmp_path, "-c", str(file), "-p")
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "connectWhichBroker=127.0.0.1:10951",
        "clientUploadFilterClassEnable=true",
        "filterServerPort=0",
    ):
        assert f"\n{line}\n" in f"\n{done.stdout}"


def test_a_bad_setting_is_one_line_and_a_failure(tmp_path: Path) -> None:
    for arguments, complaint in (
        (["--port", "70000"], "filterServerPort=70000: expected a whole number between 0 and 65535"),
        (["--broker", "here"], "connectWhichBroker=here: expected host:port"),
        (["-o", "authenticationEnabled=true"], "authConfigPath=: expected the directory of"),
        (["-o", "filterClassRepertoryUrl=http://x"], "filterClassRepertoryUrl=http://x: expected"),
    ):
        done = FILTER_SERVER.run(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"mqfiltersrv: {complaint}")


def test_it_waits_for_a_broker_that_is_not_there_yet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    with FILTER_SERVER.running(tmp_path, "--broker", address, *QUIET) as running:
        assert running.stop() == 0
    assert f"not registered at the broker {address}, trying again" in running.stderr()


@confined
def test_a_broker_starts_filter_servers_beside_it_and_ends_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(BROKERS_FILE.format(store=tmp_path / "store"))
    with (
        NAME_SERVER.running(tmp_path, "--port", "0", *QUIET) as names,
        BROKER.running(tmp_path, "-c", str(file), "-n", names.boot["address"]) as broker,
    ):
        filters = asyncio.run(_filtered(names.boot["address"], broker.boot["address"]))
        assert broker.stop() == 0
        assert "unknown" not in broker.stderr()
        with socket.socket() as late:
            assert late.connect_ex(parse_address(filters)) != 0


async def test_a_broker_has_as_many_filter_servers_as_it_asks_for_also_after_one_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(filter_servers_beside, "RESTART_S", 0.0)
    chosen = configuration(tmp_path, filter_servers=2)

    def registered() -> int:
        return caplog.text.count("filter server registered address=")

    async with Broker(chosen) as broker:
        beside = filter_servers_beside.FilterServersBeside(broker, chosen)
        await beside.start()
        try:
            await turn_until(lambda: registered() == 2)
            (pid,) = re.findall(r"filter server started number=1 pid=(\d+)", caplog.text)
            os.kill(int(pid), signal.SIGKILL)
            await turn_until(lambda: registered() == 3)
        finally:
            await beside.stop()
    assert "filter server has ended number=1 status=-9" in caplog.text
    assert caplog.text.count("filter server is gone") >= 1


async def _filtered(names: str, broker: str) -> str:
    """Upload a filter to the filter server in the route, and pull through it; its address."""
    dialer = Dialer()
    try:
        await dialer.call(broker, topic_creation(), TIMEOUT_S)
        for body in (b"small", b"large"):
            await dialer.call(broker, message(body), TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := await _in_route(dialer, names)):
                pass
        source = "def match(message, context):\n    return message.body == b'large'\n"
        await dialer.call(found[0], upload(source), TIMEOUT_S)
        answer = await dialer.call(found[0], pull(0, sys_flag=CLASS_FILTER), TIMEOUT_S)
        assert [each.body for each in decode_records(answer.body)] == [b"large"]
        return found[0]
    finally:
        await dialer.close()


async def _in_route(dialer: Dialer, names: str) -> list[str]:
    try:
        route = (await dialer.call(names, GetRoute(topic=TOPIC), TIMEOUT_S)).body
    except Refused:  # the topic has not been registered yet
        return []
    assert route is not None
    return [each for servers in route.filter_server_table.values() for each in servers]
