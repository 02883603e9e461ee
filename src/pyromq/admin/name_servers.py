"""Operations on name servers: settings, the write permission of brokers, and what each of them knows."""

from collections.abc import Mapping

from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.failures import NotFound, nearest
from pyromq.config.properties import render
from pyromq.protocol.requests.brokers import AddWritePermission, WipeWritePermission
from pyromq.protocol.requests.routes import ClusterInfo, GetAllTopics
from pyromq.protocol.requests.settings import GetNameServerConfig, UpdateNameServerConfig


async def config(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The settings of every name server, by address."""
    answers = await cluster.ask_name_servers(GetNameServerConfig())
    return {address: settings_of(answer.body) for address, answer in answers.items()}


async def update_config(cluster: Cluster, key: str, value: str) -> dict[str, str]:
    """Change a setting of every name server; returns the remark of each, by address. `NotFound` if one does
    not have it."""
    answers = await cluster.ask_name_servers(UpdateNameServerConfig(body=render({key: value})))
    for address, there in (await config(cluster)).items():
        require_setting(f"name server {address}", there, key)
    return {address: answer.remark or "" for address, answer in answers.items()}


async def wipe_write_permission(cluster: Cluster, broker_name: str) -> dict[str, int]:
    """Remove the write permission of a broker; returns the number of topics changed, by name server."""
    await cluster.broker_address(broker_name)
    answers = await cluster.ask_name_servers(WipeWritePermission(broker_name=broker_name))
    return {address: answer.wipe_topic_count for address, answer in answers.items()}


async def add_write_permission(cluster: Cluster, broker_name: str) -> dict[str, int]:
    """Give a broker its write permission back; returns the number of topics changed, by name server."""
    await cluster.broker_address(broker_name)
    answers = await cluster.ask_name_servers(AddWritePermission(broker_name=broker_name))
    return {address: answer.add_topic_count for address, answer in answers.items()}


async def topics_at(cluster: Cluster, name_server: str) -> list[str]:
    """The topics that one name server knows."""
    return sorted((await cluster.ask(name_server, GetAllTopics())).body.topic_list)


def differing_brokers(infos: Mapping[str, ClusterInfo]) -> dict[str, tuple[str, ...]]:
    """The names of the brokers that a name server knows differently from another one, by name server."""
    known = {
        server: {
            (member.cluster, member.broker_name, member.broker_id, member.address)
            for member in members_of(info)
        }
        for server, info in infos.items()
    }
    everywhere = set.intersection(*known.values()) if known else set()
    anywhere = set().union(*known.values())
    return {
        server: tuple(sorted({name for _, name, _, _ in (here ^ anywhere) | (here - everywhere)}))
        for server, here in known.items()
        if here != anywhere or here != everywhere
    }


def require_setting(server: str, settings: dict[str, str], key: str) -> None:
    """Raise `NotFound` unless a server has a setting."""
    if key not in settings:
        hint = nearest(key, settings, "nothing was changed")
        raise NotFound(f"{server} has no setting {key}; {hint}")


def settings_of(text: str) -> dict[str, str]:
    """The settings in an answer: plain `key=value` lines, without the escapes of a properties file."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
