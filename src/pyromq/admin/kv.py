"""The key-value entries of name servers: a write goes to all of them, a read to one."""

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.kv import DeleteKvEntry, GetKvEntry, GetKvNamespace, PutKvEntry

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""The namespace of the fixed queues of ordered topics, as `broker:queues;broker:queues`."""


async def put(cluster: Cluster, namespace: str, key: str, value: str) -> None:
    await cluster.ask_name_servers(PutKvEntry(namespace=namespace, key=key, value=value))


async def delete(cluster: Cluster, namespace: str, key: str) -> None:
    await cluster.ask_name_servers(DeleteKvEntry(namespace=namespace, key=key))


async def get(cluster: Cluster, namespace: str, key: str) -> str:
    try:
        value = (await cluster.ask_name_server(GetKvEntry(namespace=namespace, key=key))).value
    except Refused as refusal:
        if refusal.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        value = None
    if value is None:
        raise NotFound(f"there is no key {key} in namespace {namespace}; `mqadmin updateKvConfig` sets it")
    return value


async def namespace(cluster: Cluster, name: str) -> dict[str, str]:
    return (await cluster.ask_name_server(GetKvNamespace(namespace=name))).body.table


async def put_order(cluster: Cluster, topic: str, value: str) -> None:
    """Set the fixed queues of an ordered topic."""
    await put(cluster, ORDER_NAMESPACE, topic, value)


async def add_order(cluster: Cluster, topic: str, broker_name: str, queues: int) -> str:
    """Set the fixed queues of an ordered topic on one broker; returns the setting for all brokers."""
    try:
        entries = (await get(cluster, ORDER_NAMESPACE, topic)).split(";")
    except NotFound:
        entries = []
    by_broker = {entry.partition(":")[0]: entry for entry in entries if entry}
    by_broker[broker_name] = f"{broker_name}:{queues}"
    value = ";".join(by_broker.values())
    await put_order(cluster, topic, value)
    return value
