"""Operations on controllers: who leads them, which replicas are in sync, elections and settings."""

from collections.abc import Sequence

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.name_servers import require_setting, settings_of
from pyromq.config.properties import render
from pyromq.protocol.requests.controller import (
    CleanBrokerData,
    ElectMaster,
    ElectMasterAnswer,
    GetControllerMetadata,
    GetControllerMetadataAnswer,
    GetSyncStateData,
    ReplicasInfo,
)
from pyromq.protocol.requests.replication import EpochEntryCache, GetEpochs
from pyromq.protocol.requests.settings import GetControllerConfig, UpdateControllerConfig


async def metadata(cluster: Cluster, controller: str) -> GetControllerMetadataAnswer:
    """The view that one controller has of all controllers."""
    return await cluster.ask(controller, GetControllerMetadata())


async def leader_of(cluster: Cluster, controllers: Sequence[str]) -> str:
    """The address of the controller that leads; the first one that answers knows it."""
    for known in await cluster.known(metadata(cluster, each) for each in controllers):
        if known is not None and known.controller_leader_address:
            return known.controller_leader_address
    raise NotFound(f"no controller leads at {';'.join(controllers)}; is one running there?")


async def known_replicas(cluster: Cluster, leader: str, broker_names: list[str]) -> dict[str, ReplicasInfo]:
    """The record of the leading controller about these broker groups."""
    return (await cluster.ask(leader, GetSyncStateData(body=broker_names))).body.replicas_info_table


async def replicas(
    cluster: Cluster, controllers: Sequence[str], broker_names: list[str]
) -> dict[str, ReplicasInfo]:
    """Master and replicas of broker groups, by name; `NotFound` if the controller knows none of them."""
    leader = await leader_of(cluster, controllers)
    table = await known_replicas(cluster, leader, broker_names)
    if not table:
        raise NotFound(f"the controller {leader} knows no broker group {', '.join(broker_names)}")
    return table


async def elect_master(
    cluster: Cluster, controllers: Sequence[str], cluster_name: str, broker_name: str, broker_id: int
) -> ElectMasterAnswer:
    """Make a replica in sync the master of its group."""
    leader = await leader_of(cluster, controllers)
    request = ElectMaster(
        cluster_name=cluster_name, broker_name=broker_name, broker_id=broker_id, designate_elect=True
    )
    return await cluster.ask(leader, request)


async def clean_metadata(
    cluster: Cluster,
    controllers: Sequence[str],
    broker_name: str,
    *,
    cluster_name: str | None = None,
    broker_ids: str | None = None,
    also_living: bool = False,
) -> None:
    """Have the controller forget brokers of a group, or all of them."""
    request = CleanBrokerData(
        cluster_name=cluster_name,
        broker_name=broker_name,
        broker_controller_ids_to_clean=broker_ids,
        is_clean_living_broker=also_living,
    )
    await cluster.ask(await leader_of(cluster, controllers), request)


async def config(cluster: Cluster, controllers: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of controllers, by address."""
    answers = await cluster.ask_each(controllers, GetControllerConfig())
    return {address: settings_of(answer.body) for address, answer in answers.items()}


async def update_config(cluster: Cluster, controllers: Sequence[str], key: str, value: str) -> dict[str, str]:
    """Change a setting of controllers; returns the remark of each. `NotFound` if one does not have it."""
    for address, there in (await config(cluster, controllers)).items():
        require_setting(f"controller {address}", there, key)
    answers = await cluster.ask_each(controllers, UpdateControllerConfig(body=render({key: value})))
    return {address: answer.remark or "" for address, answer in answers.items()}


async def epochs(cluster: Cluster, address: str) -> EpochEntryCache:
    """Which masters have written which parts of a broker's log."""
    return (await cluster.ask(address, GetEpochs())).body
