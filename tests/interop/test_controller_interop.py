"""Apache's brokers under our controller: one dies, the other takes over, and nothing acknowledged is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.apache import ApacheBroker, ClientOf, saved_table, wait_until
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST, Release
from tests.support.own_nameserver import OwnNameServer

from pyromq.cli.mqadmin.tree import mqadmin as commands
from pyromq.testing.held_ports import held_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GROUP, TOPIC = "broker-pair", "Kept"


def apaches_broker(names: str, controller: str, store: Path, release: Release = APACHE_5) -> ApacheBroker:
    settings = {
        "enableControllerMode": "true",
        "controllerAddr": controller,
        "brokerRole": "SLAVE",
        "allAckInSyncStateSet": "true",
        "minInSyncReplicas": "1",
        "autoCreateTopicEnable": "false",
    }
    return ApacheBroker(release, names, store, name=GROUP, broker_id=-1, settings=settings)


def mqadmin(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(commands, [*words, "--json"])
    found: dict[str, Any] = json.loads(done.stdout) if done.exit_code == 0 else {}
    return found


@contextmanager
def name_server_with_controller() -> Iterator[tuple[str, str]]:
    """The addresses of both."""
    with held_port() as port:
        controller = f"127.0.0.1:{port}"
        embedded = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerPeers": f"n0-{controller}",
            "controllerDLegerSelfId": "n0",
        }
        with OwnNameServer(embedded) as names:
            yield names.address, controller


def group_at(controller: str) -> dict[str, Any]:
    """What the controller knows about the group; empty if it knows nothing."""
    return dict(mqadmin("getSyncStateSet", "-a", controller, "-b", GROUP).get(GROUP, {}))


def test_a_lone_broker_of_apaches_is_master_again_after_a_kill_in_a_new_epoch(tmp_path: Path) -> None:
    with (
        name_server_with_controller() as (names, controller),
        apaches_broker(names, controller, tmp_path / "a") as broker,
    ):
        wait_until(lambda: group_at(controller).get("masterEpoch", 0) > 0, "the first master", timeout_s=120)
        before = group_at(controller)
        broker.kill()
        broker.start()
        wait_until(
            lambda: (
                bool(group_at(controller).get("masterEpoch", 0) > before["masterEpoch"])
                and group_at(controller).get("masterAddress") == broker.address
            ),
            "the master in a new epoch",
            timeout_s=120,
        )


def test_a_replica_of_apaches_takes_over_when_its_master_is_killed(
    client_of: ClientOf, tmp_path: Path
) -> None:
    """One of each release: both have been master, and replica, under our controller."""
    client = client_of(APACHE_5, "JSON")
    with (
        name_server_with_controller() as (names, controller),
        apaches_broker(names, controller, tmp_path / "a") as first,
        apaches_broker(names, controller, tmp_path / "b", APACHE_NEWEST) as second,
    ):
        wait_until(lambda: group_at(controller).get("inSync") == 2, "both brokers in sync", timeout_s=120)
        by_address = {each.address: each for each in (first, second)}
        before = group_at(controller)
        master = by_address.pop(before["masterAddress"])
        (successor,) = by_address.values()
        client.create_topic(names, master.address, TOPIC, queues=1)
        client.send(names, [{"topic": TOPIC, "body": b"before %d" % each} for each in range(20)])
        # A replica copies topics every ten seconds: only then can it serve this one.
        wait_until(
            lambda: TOPIC in saved_table(successor.store, "topics.json"),
            "the topic on the replica",
            timeout_s=120,
        )
        shown = client.mqadmin("getControllerMetaData", "-a", controller)
        assert f"#ControllerLeaderAddress\t{controller}" in shown
        shown = client.mqadmin("getSyncStateSet", "-a", controller, "-b", GROUP)
        assert f"#MasterAddr\t{master.address}" in shown
        assert shown.count("\nInSyncReplica:") == 2
        shown = client.mqadmin("getControllerConfig", "-a", controller)
        assert "enableElectUncleanMaster" in shown
        epochs = mqadmin("getBrokerEpoch", "-b", GROUP, "-n", names)
        assert epochs[master.address]["epochs"] == epochs[successor.address]["epochs"]
        master.kill()
        wait_until(
            lambda: group_at(controller).get("masterAddress") == successor.address,
            "the new master",
            timeout_s=60,
        )
        after = group_at(controller)
        assert after["masterEpoch"] > before["masterEpoch"]
        wait_until(
            lambda: successor.address in client.mqadmin("topicRoute", "-n", names, "-t", TOPIC),
            "the new route",
            timeout_s=60,
        )
        client.send(names, [{"topic": TOPIC, "body": b"after"}])
        read = {row["body"] for row in client.read(names, TOPIC)}
        assert read == {*(b"before %d" % each for each in range(20)), b"after"}
        master.start()
        wait_until(
            lambda: group_at(controller).get("inSync") == 2, "the former master in sync", timeout_s=120
        )
        assert group_at(controller)["masterAddress"] == successor.address
