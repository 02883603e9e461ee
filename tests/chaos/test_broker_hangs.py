"""A broker that hangs leaves the routes in seconds, because it promised heartbeats, and comes back."""

import asyncio
import signal
from pathlib import Path

import pytest
from tests.support.server_programs import BROKER, NAME_SERVER

from pyromq.errors import Refused
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer

HERE = ("--port", "0", "-o", "bindAddress=127.0.0.1", "--log-dir", "")
FREQUENT_BEATS = ("-o", "brokerHeartbeatInterval=100", "-o", "brokerNotActiveTimeoutMillis=1000")
TIMEOUT_S = 60.0
"""By registrations alone it would take two minutes."""


async def wait_routed(dialer: Dialer, address: str, is_routed: bool) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await dialer.call(address, GetRoute(topic="TBW102"), TIMEOUT_S)
                found = True
            except Refused:
                found = False
            if found is is_routed:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("serialize_type", ["JSON", "ROCKETMQ"])
def test_a_broker_that_hangs_is_out_of_the_routes_until_it_goes_on(
    tmp_path: Path, serialize_type: str
) -> None:
    homes = [tmp_path / "name_server", tmp_path / "broker"]
    for home in homes:
        home.mkdir()

    async def hang_and_go_on(address: str) -> None:
        dialer = Dialer()
        try:
            await wait_routed(dialer, address, True)
            broker.process.send_signal(signal.SIGSTOP)
            await wait_routed(dialer, address, False)
            broker.process.send_signal(signal.SIGCONT)
            await wait_routed(dialer, address, True)
        finally:
            broker.process.send_signal(signal.SIGCONT)
            await dialer.close()

    with NAME_SERVER.running(homes[0], *HERE) as name_server:
        address = name_server.boot["address"]
        with BROKER.running(
            homes[1],
            *(*HERE, "-o", "brokerIP1=127.0.0.1", *FREQUENT_BEATS, "-n", address),
            ROCKETMQ_SERIALIZE_TYPE=serialize_type,
        ) as broker:
            asyncio.run(hang_and_go_on(address))
            assert broker.stop() == 0
