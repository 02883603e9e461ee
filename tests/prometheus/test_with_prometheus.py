"""The rules and the dashboard of `deploy/` with a real Prometheus, which watches a broker group of three."""

import asyncio
import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.broker_cluster import BrokerClient, topic_creation
from tests.support.places import ROOT
from tests.support.replicas import until
from tools.prometheus import program

from pyromq import aio
from pyromq.broker.broker import Broker
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

pytestmark = pytest.mark.prometheus

DEPLOY = ROOT / "deploy"
SENT = 7
_TIMEOUT_S = 60.0


class Watched:
    def __init__(self, cluster: Standalone, port: int) -> None:
        self.cluster = cluster
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    async def get(self, path: str, **fields: str) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(fields)}"

        def read() -> Any:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]

        return await asyncio.to_thread(read)

    async def value(self, expression: str) -> float | None:
        result = (await self.get("query", query=expression))["result"]
        return float(result[0]["value"][1]) if result else None

    async def until_value(self, expression: str, wanted: float) -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            while await self.value(expression) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def alerts(self) -> set[str]:
        """Those whose condition is true now, however long it must last."""
        return {each["labels"]["alertname"] for each in (await self.get("alerts"))["alerts"]}


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    small: dict[str, Any] = {"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400}
    settings = StandaloneSettings(
        store=tmp_path / "store",
        replicas=3,
        name_server={"metrics_port": 0},
        broker={"metrics_exporter": "PROM", "metrics_port": 0, "metrics_address": "127.0.0.1"},
        store_settings=small,
    )
    with on_held_ports(settings) as settled:
        async with Standalone(settled) as cluster:
            brokers = ["{}:{}".format(*each.metrics_address) for each in cluster.brokers]
            names = ["{}:{}".format(*cluster.name_server.metrics_address)]
            file = tmp_path / "prometheus.yml"
            file.write_text(
                yaml.safe_dump(
                    {
                        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                        "rule_files": [str(DEPLOY / "prometheus" / "rules.yml")],
                        "scrape_configs": [
                            {"job_name": "pyromq-broker", "static_configs": [{"targets": brokers}]},
                            {"job_name": "pyromq-namesrv", "static_configs": [{"targets": names}]},
                        ],
                    }
                )
            )
            port = _free_port()
            running = await asyncio.create_subprocess_exec(
                program("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                watched = Watched(cluster, port)
                async with asyncio.timeout(_TIMEOUT_S):
                    while True:
                        try:
                            if len((await watched.get("query", query="up == 1"))["result"]) == 4:
                                break
                        except OSError:
                            pass
                        await asyncio.sleep(0.2)
                yield watched
            finally:
                running.terminate()
                await running.wait()


def _free_port() -> int:
    """Prometheus does not tell which port it got, and cannot share one that is held."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_every_rule_fires_when_it_should_and_only_then() -> None:
    for words in (("check", "rules", DEPLOY / "prometheus" / "rules.yml"), ("test", "rules", _rule_tests())):
        done = subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _rule_tests() -> Path:
    return Path(__file__).parent / "rules_test.yml"


def _panels() -> dict[str, str]:
    board = json.loads((DEPLOY / "grafana" / "pyromq.json").read_text())
    return {
        f"{panel['title']} {target['refId']}": re.sub(
            r'=~"\$\w+"', '=~".*"', target["expr"].replace("$__rate_interval", "1m")
        )
        for panel in board["panels"]
        for target in panel.get("targets", ())
    }


def _knows_the_group(broker: Broker) -> bool:
    assert broker._parts is not None
    return "shop" in broker._parts.tables.offsets.groups_of("Orders")


@asynccontextmanager
async def readers_and_senders(cluster: Standalone) -> AsyncIterator[None]:
    """What the other panels show: clients, messages that are read, and one that is given up."""
    async with BrokerClient(cluster.brokers[cluster.master_number()].address) as client:
        await client.call(topic_creation("Sales"))
    read = asyncio.Event()
    consumer = aio.PushConsumer("tills", cluster.namesrv, start_from="first")

    async def take(message: aio.ReceivedMessage) -> None:
        read.set()
        raise aio.GiveUp("nobody wants it")

    consumer.subscribe("Sales", "*", take)
    async with consumer, aio.Producer("clerks", cluster.namesrv) as producer:
        await producer.send(aio.Message("Sales", b"one"))
        await read.wait()
        yield


async def test_rules_and_panels_on_a_group_of_three(watched: Watched) -> None:
    cluster = watched.cluster
    master = cluster.brokers[cluster.master_number()]
    async with BrokerClient(master.address) as client:
        await client.call(topic_creation("Orders"))
        for _ in range(SENT):
            await client.send(topic="Orders")
        await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="shop")))
        await client.call(
            UpdateConsumerOffset(consumer_group="shop", topic="Orders", queue_id=0, commit_offset=0)
        )
    panels = _panels()
    # Three brokers have the messages: neither lag nor brokers are counted three times.
    await until(lambda: all(_knows_the_group(broker) for broker in cluster.brokers), "the tables are copied")
    await watched.until_value(f"min(timestamp(up)) > bool {time.time()}", 1)
    lag = 'rocketmq_consumer_lag_messages{consumer_group="shop"}'
    await watched.until_value(f"sum({lag})", SENT)
    assert await watched.value(f"count({lag})") == 1
    assert await watched.value(panels["Brokers in the routes A"]) == 3
    assert await watched.value('sum(rocketmq_messages_in_total{topic="Orders"})') == SENT
    assert await watched.value("sum(pyromq_broker_is_master)") == 1
    assert await watched.value("count(pyromq_broker_replica_behind_bytes)") == 2
    behind = (await watched.get("query", query="pyromq_broker_replica_behind_bytes"))["result"]
    assert all(each["metric"]["replica"].isdigit() for each in behind)
    async with readers_and_senders(cluster):
        for title, expression in panels.items():
            async with asyncio.timeout(_TIMEOUT_S):
                while not (found := await watched.get("query", query=expression))["result"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            assert found["resultType"] == "vector", title
    groups = (await watched.get("rules"))["groups"]
    assert [rule["health"] for group in groups for rule in group["rules"]] == ["ok"] * 19
    assert await watched.alerts() <= {"PyroMQDiskFilling", "PyroMQGroupOffline"}

    number = next(i for i, each in enumerate(cluster.brokers) if not each.role.now.is_master)
    await cluster.kill_broker(number)
    await until(lambda: len(cluster.brokers) == 2)
    async with asyncio.timeout(_TIMEOUT_S):
        while not {"PyroMQServerDown", "PyroMQInSyncSetShrunk"} <= await watched.alerts():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
