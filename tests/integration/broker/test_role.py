"""A broker's role may change while it runs, and everything that depends on it follows."""

from pathlib import Path

import pytest
from tests.support.broker_cluster import TOPIC, Bench, message
from tests.support.name_servers import name_server

from pyromq.broker.tables.role import Role, RoleTable
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer

UNIQUE = {"UNIQ_KEY": "A1"}


@pytest.mark.parametrize("form", [HeaderForm.JSON, HeaderForm.BINARY])
async def test_a_replica_refuses_messages_on_every_path_and_hands_out_what_it_has(
    tmp_path: Path, form: HeaderForm
) -> None:
    async with Bench(tmp_path, form) as bench:
        await bench.client.create_topic()
        await bench.client.call(message(b"one", properties=UNIQUE))
        bench.broker.role.change(Role(broker_id=1, epoch=1))
        for properties in (UNIQUE, None):
            refused = await bench.client.refusal(message(b"two", properties=properties))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "is replica 1: only the master accepts messages" in (refused.remark or "")
        assert (await bench.client.pull()).bodies == [b"one"]
        bench.broker.role.change(Role(epoch=2))
        await bench.client.call(message(b"three", properties=UNIQUE))
        assert (await bench.client.pull()).bodies == [b"one", b"three"]


async def test_name_servers_are_told_of_a_new_role(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        address = format_address(*names.address)
        async with Bench(tmp_path / "store", HeaderForm.JSON, namesrv_addr=address) as bench:
            await bench.client.create_topic()
            dialer = Dialer()
            try:
                for role in (Role(broker_id=2, epoch=1), Role(epoch=2)):
                    bench.broker.role.change(role)
                    while True:
                        route = (await dialer.call(address, GetRoute(topic=TOPIC), 60)).body
                        assert route is not None
                        (group,) = route.broker_datas
                        if list(group.broker_addrs) == [role.broker_id]:
                            break
            finally:
                await dialer.close()


def test_a_role_of_an_older_epoch_is_refused() -> None:
    table = RoleTable(Role(epoch=3))
    with pytest.raises(ValueError, match="the role of epoch 2 is older than that of epoch 3"):
        table.change(Role(broker_id=1, epoch=2))
    assert table.now == Role(epoch=3)
