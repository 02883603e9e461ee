"""A filter server registers with a broker, and routes name it while it lives."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.access import ROOT, SECURE, client, is_refused
from tests.support.broker_cluster import TOPIC, Bench, running_broker
from tests.support.name_servers import name_server

from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.filter_servers import RegisterFilterServer
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer

ONE, OTHER = "10.0.0.1:30000", "10.0.0.2:30000"


@pytest.mark.parametrize("form", [HeaderForm.JSON, HeaderForm.BINARY])
async def test_routes_name_the_filter_servers_that_are_connected(tmp_path: Path, form: HeaderForm) -> None:
    dialer = Dialer()

    async def wait_for(wanted: Callable[[dict[str, list[str]]], bool]) -> None:
        while True:
            route = (await dialer.call(address, GetRoute(topic=TOPIC), 60)).body
            assert route is not None
            if wanted(route.filter_server_table):
                return

    async with name_server(tmp_path) as names:
        address = format_address(*names.address)
        async with Bench(tmp_path / "store", form, namesrv_addr=address) as bench:
            await bench.client.create_topic()
            other = await bench.new_client("filters")
            for address_of_server, connected in ((ONE, bench.client), (OTHER, other)):
                answer = await connected.call(RegisterFilterServer(filter_server_addr=address_of_server))
                assert (answer.broker_name, answer.broker_id) == (bench.broker.settings.broker_name, 0)
            await wait_for(lambda table: list(table.values()) == [[ONE, OTHER]])
            await other.close()
            await wait_for(lambda table: list(table.values()) == [[ONE]])
            # A change of topics does not make name servers forget them.
            await bench.client.create_topic("Another")
            await wait_for(lambda table: list(table.values()) == [[ONE]])
        await dialer.close()


async def test_only_operators_may_lead_consumers_to_a_filter_server(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **SECURE) as broker,
        client(broker.address, ROOT) as root,
        client(broker.address) as stranger,
    ):
        assert await is_refused(stranger, RegisterFilterServer(filter_server_addr=ONE))
        await root.call(RegisterFilterServer(filter_server_addr=ONE))
