"""The settings, topics, groups and figures of a cluster, in the form that Apache's tool exports."""

from typing import Any

from pyromq.admin import brokers, groups, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.connections import consumers
from pyromq.admin.failures import NotFound
from pyromq.protocol.codes import CURRENT_VERSION, version_name
from pyromq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import BrokerStatsData
from pyromq.protocol.requests.topics import TopicConfig

EXPORTED_SETTINGS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)


async def configs(cluster: Cluster, cluster_name: str) -> dict[str, Any]:
    """The main settings of a cluster's brokers, and the number of its servers."""
    members = await cluster.members(cluster_name)
    masters = [member for member in members if member.is_master]
    of_brokers: dict[str, dict[str, str]] = {}
    for member in masters:
        settings = await brokers.config(cluster, member.address)
        of_brokers[member.broker_name] = {key: settings[key] for key in EXPORTED_SETTINGS if key in settings}
    return {
        "brokerConfigs": of_brokers,
        "clusterScale": {
            "namesrvSize": len(cluster.name_servers),
            "masterBrokerSize": len(masters),
            "slaveBrokerSize": len(members) - len(masters),
        },
    }


async def topic_table(
    cluster: Cluster, addresses: list[str], *, derived: bool = False
) -> dict[str, TopicConfig]:
    """The user topics of several brokers; queue numbers are added up."""
    table: dict[str, TopicConfig] = {}
    for address in addresses:
        for name, config in (await topics.user_configs(cluster, address, derived=derived)).items():
            if name in table:
                config.read_queue_nums += table[name].read_queue_nums
                config.write_queue_nums += table[name].write_queue_nums
            table[name] = config
    return table


async def group_table(cluster: Cluster, addresses: list[str]) -> dict[str, SubscriptionGroupConfig]:
    """The user groups of several brokers; numbers of retry queues are added up."""
    table: dict[str, SubscriptionGroupConfig] = {}
    for address in addresses:
        for name, config in (await groups.user_configs(cluster, address)).items():
            if name in table:
                config.retry_queue_nums += table[name].retry_queue_nums
            table[name] = config
    return table


async def metrics(cluster: Cluster, cluster_name: str) -> dict[str, Any]:
    """The figures of each master of a cluster, and their totals."""
    report: dict[str, Any] = {}
    total_tps = dict.fromkeys(
        ("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps"), 0.0
    )
    total_day = dict.fromkeys(
        ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum"), 0
    )
    for status in await brokers.statuses(cluster, cluster_name):
        if not status.member.is_master:
            continue
        quota = await _quota(cluster, status)
        for key, rate in quota["tps"].items():
            total_tps[f"total{key[0].upper()}{key[1:]}"] += rate
        for key, count in quota["oneDayNum"].items():
            total_day[key] += count
        settings = await brokers.config(cluster, status.member.address)
        report[status.member.broker_name] = {
            "runtimeEnv": {
                "cpuNum": settings.get("clientCallbackExecutorThreads"),
                "totalMemKBytes": status.text("totalMemKBytes") or None,
            },
            "runtimeQuota": quota,
            "runtimeVersion": {
                "rocketmqVersion": version_name(CURRENT_VERSION),
                "clientInfo": await _clients(cluster, status.member.address),
            },
        }
    return {"evaluateReport": report, "totalData": {"totalTps": total_tps, "totalOneDayNum": total_day}}


async def _quota(cluster: Cluster, status: brokers.BrokerStatus) -> dict[str, Any]:
    address = status.member.address
    transactions = await brokers.counter(cluster, address, brokers.TOPIC_PUT_NUMS, HALF_TOPIC)
    delayed = await brokers.counter(cluster, address, brokers.TOPIC_PUT_NUMS, SCHEDULE_TOPIC)

    def rate(counter: BrokerStatsData | None) -> float:
        return 0.0 if counter is None or counter.stats_minute is None else counter.stats_minute.tps

    def day(counter: BrokerStatsData | None) -> int:
        return 0 if counter is None else brokers.last_day(counter)

    def yesterday(which: str) -> int:
        return int(
            status.number(f"msg{which}TotalTodayMorning") - status.number(f"msg{which}TotalYesterdayMorning")
        )

    return {
        "diskRatio": {key: status.text(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "tps": {
            "normalInTps": status.number("putTps"),
            "normalOutTps": status.number("getTransferredTps"),
            "transInTps": rate(transactions),
            "scheduleInTps": rate(delayed),
        },
        "oneDayNum": {
            "normalOneDayInNum": yesterday("Put"),
            "normalOneDayOutNum": yesterday("Get"),
            "transOneDayInNum": day(transactions),
            "scheduleOneDayInNum": day(delayed),
        },
        "messageAverageSize": status.text("putMessageAverageSize"),
        "topicSize": len(await topics.user_configs(cluster, address)),
        "groupSize": len(await groups.user_configs(cluster, address)),
    }


async def _clients(cluster: Cluster, address: str) -> list[str]:
    """The languages and versions of the consumers of a broker."""
    found: set[str] = set()
    for group in await groups.user_configs(cluster, address):
        try:
            members = await consumers(cluster, group, address)
        except NotFound:
            continue
        found |= {f"{each.language}%{version_name(each.version)}" for each in members.connection_set}
    return sorted(found)
