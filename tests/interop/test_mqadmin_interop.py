"""Apache's mqadmin at our servers and at its own, both in the same state: it must say the same of both."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import (
    ApacheBroker,
    ApacheClient,
    ApacheNameServer,
    ClientOf,
    keyed_messages,
    wait_for_broker,
    wait_until,
)
from tests.support.apache_releases import APACHE_4, APACHE_5
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP = "Orders", "buyers"
QUEUES, MESSAGES = 2, 10

_VOLATILE = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,:]\d{3})?", "TIME"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "CLIENT"),
    (r"\b1[78]\d{11}\b", "MILLIS"),
    (r"\b(member|producer)-\d+", r"\1"),
    (r"(rt=)\d+ms", r"\1"),
    (r"(Consume TPS: )[\d.]+", r"\1"),
    (r"\S+/\d+/(?=127\.0\.0\.1@)", "FILE/"),
)


# Since 5.0 a record has three properties more, so everything behind it lies elsewhere.
_OF_RECORDS = (
    (r"(properties=|Properties: +){[^}]*}", r"\1"),
    (r"(storeSize|commitLogOffset|physicOffset|physicSize)=\d+", r"\1"),
    (r"(CommitLog Offset: +)\d+", r"\1"),
)


@dataclass(frozen=True)
class Side:
    """One cluster: a name server, a broker and what was sent to it."""

    name_server: str
    broker: str
    sent: list[dict[str, Any]]


@dataclass(frozen=True)
class Both:
    client: ApacheClient
    ours: Side
    apaches: Side

    def say(self, *command: str) -> tuple[str, str]:
        """What mqadmin says of ours and of Apache's, without what no two runs have in common."""
        return self.at(self.ours, *command), self.at(self.apaches, *command)

    def wait_consumed(self, side: Side) -> None:
        """All offsets are committed, and the member has found its retry topic."""

        def consumed() -> bool:
            said = self.at(side, "consumerProgress", "-g", GROUP)
            return "%RETRY%" in said and "Diff Total: 0" in said

        wait_until(consumed, "committed offsets")

    def at(self, side: Side, *command: str) -> str:
        places = {
            "BROKER": side.broker,
            "MESSAGE": side.sent[3]["msgId"],
            "PLACE": side.sent[3]["offsetMsgId"],
        }
        said = self.client.mqadmin(*(places.get(word, word) for word in command), "-n", side.name_server)
        lines = [line.rstrip() for line in said.splitlines() if not line.startswith(("\tat ", "See http"))]
        text = "\n".join(lines).replace(side.name_server, "NAMESERVER").replace(side.broker, "BROKER")
        for pattern, name in _VOLATILE:
            text = re.sub(pattern, name, text)
        if self.client.release is APACHE_4:
            for pattern, name in _OF_RECORDS:
                text = re.sub(pattern, name, text)
        # Columns are as wide as what stands in them, and a port has four or five digits.
        return re.sub(r" {2,}", "  ", text)


@pytest.fixture(
    scope="module", params=[(APACHE_4, "ROCKETMQ"), (APACHE_5, "JSON")], ids=lambda p: f"{p[0]}-{p[1]}"
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client_of: ClientOf
) -> Iterator[Both]:
    release, form = request.param
    client = client_of(release, form)
    settings = {"enablePropertyFilter": "true", "traceTopicEnable": "true"}
    with contextlib.ExitStack() as running:
        own_names = running.enter_context(OwnNameServer())
        apaches_names = running.enter_context(ApacheNameServer(release))
        own_broker = running.enter_context(OwnBroker(own_names.address))
        apaches_broker = running.enter_context(
            ApacheBroker(release, apaches_names.address, tmp_path_factory.mktemp("store"), settings=settings)
        )
        sides = []
        for names, broker in ((own_names.address, own_broker), (apaches_names.address, apaches_broker)):
            wait_for_broker(names, broker.name)
            client.create_topic(names, broker.address, TOPIC, QUEUES)
            sent = client.send(names, keyed_messages(TOPIC, QUEUES, MESSAGES))
            member = running.enter_context(client.member(names, GROUP, TOPIC, reply="re: "))
            member.received(MESSAGES)
            sides.append(Side(names, broker.address, sent))
        both = Both(client, *sides)
        for side in sides:
            both.wait_consumed(side)
        yield both
        assert " ERROR " not in own_broker.output(), own_broker.output()


@pytest.fixture(scope="module")
def other(both: Both) -> Iterator[ApacheClient]:
    """For commands that keep one client for the whole life of the tool: each works at one cluster only."""
    with ApacheClient(both.client.release) as client:
        yield client


ONLY_5 = "consumerProgress -g buyers -t Orders"
SAME = [
    "topicRoute -t Orders",
    "topicStatus -t Orders",
    "topicClusterList -t Orders",
    "consumerProgress -g buyers",
    ONLY_5,
    "consumerProgress -g nosuch",
    "consumerStatus -g buyers",
    "consumerConnection -g buyers",
    "consumerConnection -g nosuch",
    "getConsumerConfig -g buyers",
    "queryMsgByKey -t Orders -k key3",
    "queryMsgByKey -t Orders -k nokey",
    "queryMsgByOffset -t Orders -b broker-a -i 1 -o 99",
    "printMsg -t Orders -d true",
    "printMsgByQueue -t Orders -a broker-a -i 1 -p true -d true",
    "queryCq -t Orders -q 1 -i 0 -c 3 -b BROKER",
    "allocateMQ -t Orders -i 127.0.0.1,127.0.0.2",
    "updateTopic -b BROKER -t Made -r 3 -w 3",
    "updateTopic -c DefaultCluster -t MadeToo",
    "updateTopicPerm -b BROKER -t Made -p 4",
    "updateTopicPerm -c DefaultCluster -t Made -p 6",
    "topicRoute -t Made",
    "updateSubGroup -b BROKER -g made -r 3",
    "updateSubGroup -c DefaultCluster -g made -s false",
    "getConsumerConfig -g made",
    "deleteSubGroup -b BROKER -g made",
    "updateBrokerConfig -b BROKER -k fileReservedTime -v 30",
    "updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 31",
    "cleanExpiredCQ -b BROKER",
    "cleanExpiredCQ -c DefaultCluster",
    "deleteExpiredCommitLog -b BROKER",
    "cleanUnusedTopic -b BROKER",
    "deleteTopic -t Made -c DefaultCluster",
]


@pytest.mark.parametrize("command", SAME)
def test_mqadmin_says_the_same_of_both(both: Both, command: str) -> None:
    words = command.split()
    if both.client.release is APACHE_4 and command == ONLY_5:
        pytest.skip("this release ends at an option it does not know")
    ours, apaches = both.say(*words)
    # Tables come in the order of Java's hash tables.
    assert sorted(ours.splitlines()) == sorted(apaches.splitlines())
    assert ours.strip() or words[0] == "queryMsgByOffset"


@pytest.mark.parametrize(
    "command", ["queryMsgById -i PLACE", "queryMsgByOffset -t Orders -b broker-a -i 1 -o 2"]
)
def test_a_message_and_who_consumed_it_are_shown(both: Both, command: str) -> None:
    words = command.split()
    if words[0] == "queryMsgById" and both.client.release is APACHE_5:
        words += ["-t", TOPIC]
    ours, apaches = (_without_phantoms(said) for said in both.say(*words))
    assert ours == apaches
    assert any("trackType=CONSUMED" in line for line in ours)


def _without_phantoms(said: str) -> list[str]:
    """5.3.3 counts a topic's own name among the groups that consume it."""
    return [line for line in said.splitlines() if f"consumerGroup={TOPIC}," not in line]


def test_a_message_is_found_by_its_unique_key(both: Both, other: ApacheClient) -> None:
    command = ("queryMsgByUniqueKey", "-i", "MESSAGE", "-t", TOPIC)
    ours = both.at(both.ours, *command).splitlines()
    apaches = replace(both, client=other).at(both.apaches, *command).splitlines()
    # Who consumed it is compared above; here Apache's tool does not always find them all.
    shown, expected = ([line for line in said if "MessageTrack" not in line] for said in (ours, apaches))
    assert shown == expected
    assert any(re.search(r"Keys:\s+\[?key3", line) for line in ours), ours
    assert any("CONSUMED" in line for line in ours), ours


def test_the_cluster_list_has_the_same_columns(both: Both) -> None:
    ours, apaches = ([line.split()[:4] for line in said.splitlines()] for said in both.say("clusterList"))
    assert ours == apaches
    assert ["DefaultCluster", "broker-a", "0", "BROKER"] in ours


def test_all_groups_are_listed(both: Both) -> None:
    # The sixth column is about this very moment, and the tool's own groups come and go.
    ours, apaches = (
        [[*row[:5], *row[6:]] for row in map(str.split, said.splitlines()) if row[0] in ("#Group", GROUP)]
        for said in both.say("consumerProgress")
    )
    assert ours == apaches
    assert len(ours) == 2


def test_totals_of_brokers_are_listed(both: Both) -> None:
    ours, apaches = (
        [line.split()[:2] for line in said.splitlines()] for said in both.say("clusterList", "-m")
    )
    assert ours == apaches
    assert ["DefaultCluster", "broker-a"] in ours


def test_topics_are_listed_with_their_groups(both: Both) -> None:
    ours, apaches = (
        {tuple(line.split()[1:3]) for line in said.splitlines() if GROUP in line}
        for said in both.say("topicList", "-c")
    )
    assert ours == apaches == {(TOPIC, GROUP), (f"%RETRY%{GROUP}", GROUP)} & (ours | apaches)
    assert (TOPIC, GROUP) in ours


def test_system_topics_are_apaches_but_for_those_of_missing_parts(both: Both) -> None:
    ours, apaches = (set(said.split()) for said in both.say("topicList"))
    missing = {topic for topic in apaches - ours if not topic.startswith("Made")}
    # Transactions, timers, popping and the syncing of replicas.
    assert missing <= {
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    }


def test_every_producer_is_listed(both: Both) -> None:
    # A replying consumer is a producer as well: it is known from its next heartbeat on.
    reply = both.client.request(both.ours.name_server, {"topic": TOPIC, "body": b"who?"})
    assert reply["body"] == b"re: who?"
    command = ("producerConnection", "-g", "replying", "-t", TOPIC)
    wait_until(lambda: "127.0.0.1@producer" in both.at(both.ours, *command), "a producer")
    both.client.request(both.apaches.name_server, {"topic": TOPIC, "body": b"who?"})
    wait_until(lambda: "127.0.0.1@producer" in both.at(both.apaches, *command), "a producer")
    ours, apaches = both.say(*command)
    assert ours == apaches


def test_a_missing_producer_group_is_said_to_be_missing(both: Both) -> None:
    for said in both.say("producerConnection", "-g", "nosuch", "-t", TOPIC):
        assert "CODE: 1 " in said


def test_runtime_figures_have_apaches_names(both: Both) -> None:
    ours, apaches = (
        {line.partition(":")[0].strip() for line in said.splitlines() if ":" in line}
        for said in both.say("brokerStatus", "-b", "BROKER")
    )
    for name in (
        "msgPutTotalTodayNow",
        "putTps",
        "getTotalTps",
        "commitLogMaxOffset",
        "brokerVersionDesc",
        "runtime",
    ):
        assert name in ours & apaches
    unlike = {name for name in apaches - ours if not name.startswith("commitLogDiskRatio_")}
    assert unlike == set()


def test_lag_of_all_groups_of_a_broker_is_listed(both: Both, other: ApacheClient) -> None:
    for side in (both.ours, both.apaches):
        both.wait_consumed(side)
    command = ("brokerConsumeStats", "-b", "BROKER")
    # The last column is the time of the last message.
    ours, apaches = (
        sorted(line.split()[:7] for line in said.splitlines() if line.startswith(TOPIC))
        for said in (both.at(both.ours, *command), replace(both, client=other).at(both.apaches, *command))
    )
    assert ours == apaches
    assert [row[:3] for row in ours] == [[TOPIC, GROUP, "broker-a"]] * QUEUES


NOT_SHOWN = {
    # No value, or one that depends on where the broker was installed.
    "controllerAddr",
    "messageStorePlugIn",
    "metricsGrpcExporterHeader",
    "metricsGrpcExporterTarget",
    "rocketmqHome",
    "storePathCommitLog",
    # Not settings but what a broker says of itself, or what later releases no longer have.
    "isBrokerContainer",
    "isEnableBatchPush",
    "isInBrokerContainer",
    "isScanAvailableNameSrv",
    "timerCheckMetricsWhen",
    "timerEnableDisruptor",
    "timerStopDequeue",
    "timerWarmEnable",
}


def test_every_setting_apache_shows_is_shown(both: Both) -> None:
    ours, apaches = (
        {line.partition("=")[0].strip() for line in said.splitlines() if "=" in line}
        for said in both.say("getBrokerConfig", "-b", "BROKER")
    )
    missing = apaches - ours
    assert missing <= NOT_SHOWN, sorted(missing - NOT_SHOWN)


def test_a_changed_setting_is_shown(both: Both) -> None:
    for side in (both.ours, both.apaches):
        both.at(side, "updateBrokerConfig", "-b", "BROKER", "-k", "deleteWhen", "-v", "05")
        assert re.search(r"deleteWhen\s*=\s*05", both.at(side, "getBrokerConfig", "-b", "BROKER"))


def test_write_permission_is_wiped_and_given_back(both: Both) -> None:
    for command in ("wipeWritePerm", "addWritePerm"):
        ours, apaches = (re.sub(r", \d+$", "", said) for said in both.say(command, "-b", "broker-a"))
        assert ours == apaches
        ours, apaches = both.say("topicRoute", "-t", TOPIC)
        assert ours == apaches


def test_test_messages_are_sent(both: Both) -> None:
    ours, apaches = both.say("sendMsgStatus", "-b", "broker-a", "-c", "3")
    assert ours == apaches
    assert ours.count("SEND_OK") == 3
    both.client.create_topic(both.ours.name_server, both.ours.broker, "Timed")
    said = both.at(both.ours, "checkMsgSendRT", "-t", "Timed", "-a", "4")
    assert said.count("true") == 4


# The tool keeps one producer and one consumer for its whole life: in one JVM each command works once.
def test_mqadmin_sends_and_consumes(both: Both) -> None:
    both.client.create_topic(both.ours.name_server, both.ours.broker, "ByHand")
    said = both.at(both.ours, "sendMessage", "-t", "ByHand", "-p", "by hand", "-k", "hand")
    assert "SEND_OK" in said
    assert "by hand" in both.at(both.ours, "consumeMessage", "-t", "ByHand")


def test_totals_of_the_day_are_listed(both: Both) -> None:
    # The third column is the backlog; those behind it are rates of this moment.
    ours, apaches = (
        [line.split()[:3] for line in said.splitlines() if line.startswith(TOPIC) and GROUP in line]
        for said in both.say("statsAll", "-t", TOPIC)
    )
    assert ours == apaches == [[TOPIC, GROUP, "0"]]


def test_offsets_are_cloned_reset_and_skipped(both: Both) -> None:
    for side in (both.ours, both.apaches):
        both.at(side, "updateSubGroup", "-b", "BROKER", "-g", "sellers")
    for command in (
        "cloneGroupOffset -s buyers -d sellers -t Orders",
        "consumerProgress -g sellers",
        "resetOffsetByTime -g sellers -t Orders -s 1000",
        "consumerProgress -g sellers",
        "skipAccumulatedMessage -g sellers -t Orders",
    ):
        ours, apaches = both.say(*command.split())
        if command.startswith(("reset", "skip")) and both.client.release is APACHE_4:
            # Brokers of 4.9 leave the reset of an absent group to the tool, which then shows another table.
            assert "broker-a" in ours
            continue
        assert sorted(ours.splitlines()) == sorted(apaches.splitlines()), command


EXPORTS = {
    "exportMetadata": ("metadata.json", ("topicConfigTable", TOPIC)),
    "exportConfigs": ("configs.json", ("clusterScale",)),
    "exportMetrics": ("metrics.json", ("evaluateReport", "broker-a")),
}


@pytest.mark.parametrize("command", EXPORTS)
def test_what_is_exported_is_the_same(both: Both, command: str, tmp_path: Path) -> None:
    name, place = EXPORTS[command]
    found = []
    for side, directory in ((both.ours, tmp_path / "ours"), (both.apaches, tmp_path / "apaches")):
        directory.mkdir()
        both.at(side, command, "-c", "DefaultCluster", "-f", str(directory))
        told = json.loads((directory / name).read_text())
        for key in place:
            told = told[key]
        # Figures move; which there are does not.
        found.append(sorted(told) if command == "exportMetrics" else told)
    assert found[0] == found[1]
    assert found[0]


def test_topics_and_groups_are_made_from_files(both: Both, tmp_path: Path) -> None:
    if both.client.release is APACHE_4:
        pytest.skip("this release has no such commands")
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": name, "readQueueNums": 3} for name in ("FileA", "FileB")]))
    groups.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 5} for name in ("filea", "fileb")]))
    for command in (
        f"updateTopicList -b BROKER -f {topics}",
        f"updateSubGroupList -b BROKER -f {groups}",
    ):
        ours, apaches = both.say(*command.split())
        assert ours == apaches
        assert "success" in ours
    for side in (both.ours, both.apaches):
        wait_until(lambda side=side: "FileB" in both.at(side, "topicList").split(), "a route")  # type: ignore[misc]
    for command in ("topicRoute -t FileB", "getConsumerConfig -g fileb"):
        ours, apaches = both.say(*command.split())
        assert sorted(ours.splitlines()) == sorted(apaches.splitlines())


def test_producers_of_a_broker_are_listed(both: Both) -> None:
    ours, apaches = both.say("producer", "-b", "BROKER")
    for said in (ours, apaches):
        assert "peer_producer" in said or "CLIENT_INNER_PRODUCER" in said, said
