"""Name servers of ours and of Apache's compared: what only some know, and what could not be compared."""

from pathlib import Path

from tests.support.name_servers import name_server, register_broker
from tests.support.told_cluster import ToldBroker, ToldCluster

from pyromq.admin import route_differences
from pyromq.admin.cluster import Cluster
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer


async def register(dialer: Dialer, server: NameServer, address: str, **queues: int) -> None:
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
        for name, count in queues.items()
    }
    request = register_broker("a", 0, topics, broker_addr=address)
    await dialer.call(format_address(*server.address), request, 10.0)


async def test_every_difference_between_name_servers_of_ours_is_found(tmp_path: Path) -> None:
    dialer = Dialer()
    async with name_server(tmp_path / "1") as one, name_server(tmp_path / "2") as two:
        await register(dialer, one, "h:1", same=4, queues=4, only=1)
        await register(dialer, two, "h:1", same=4, queues=8)
        servers = [format_address(*each.address) for each in (one, two)]
        async with Cluster([*servers, "127.0.0.1:1"], timeout_s=5.0) as cluster:
            found = await route_differences.of_name_servers(cluster)
            assert found.servers == servers
            assert list(found.silent) == ["127.0.0.1:1"]
            assert found.has_compared_routes
            assert [(each.kind, each.name) for each in found.differences] == [
                ("topic", "only"),
                ("topic", "queues"),
            ]
            only, queues = found.differences
            assert only.known == {servers[0]: "a 0=h:1 read=1 write=1 perm=6", servers[1]: None}
            assert queues.known[servers[1]] == "a 0=h:1 read=8 write=8 perm=6"
            named = await route_differences.of_name_servers(cluster, max_routes=1)
            assert named.not_asked == 1
            assert named.differences[-1].known == {servers[0]: "", servers[1]: ""}
        await dialer.close()


async def test_another_address_of_a_broker_is_a_difference(tmp_path: Path) -> None:
    dialer = Dialer()
    async with name_server(tmp_path / "1") as one, name_server(tmp_path / "2") as two:
        await register(dialer, one, "h:1", same=4)
        await register(dialer, two, "h:2", same=4)
        servers = [format_address(*each.address) for each in (one, two)]
        async with Cluster(servers) as cluster:
            found = await route_differences.of_name_servers(cluster)
        assert (found.differences[0].kind, found.differences[0].name) == ("broker", "a/0")
        assert found.differences[0].known == dict(zip(servers, ("h:1", "h:2"), strict=True))
        await dialer.close()


async def test_name_servers_of_apache_are_compared_by_names() -> None:
    one, two = ToldBroker("a"), ToldBroker("b")
    one.add_topic("t")
    one.add_topic("u")
    two.add_topic("t")
    async with (
        ToldCluster(one) as first,
        ToldCluster(two) as second,
        Cluster([first.namesrv, second.namesrv]) as cluster,
    ):
        found = await route_differences.of_name_servers(cluster, max_routes=0)
        assert not found.has_compared_routes
        assert [each.name for each in found.differences] == ["a/0", "b/0", "u"]
