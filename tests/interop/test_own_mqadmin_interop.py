"""Our mqadmin and Apache's at one and the same Apache cluster: they must say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner
from tests.support.apache import ApacheClient, ApacheServers, keyed_messages, wait_until
from tests.support.apache_releases import APACHE_4

from pyromq.apps.pyromq import COMMANDS
from pyromq.cli.mqadmin.commands import ABSENT, NOUNS
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.protocol import json_body
from pyromq.protocol.requests.routes import TopicRouteData

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP = "Orders", "buyers"
QUEUES, MESSAGES = 2, 6


@dataclass(frozen=True)
class Tools:
    """Both tools at one cluster."""

    client: ApacheClient
    name_server: str
    broker: str
    sent: list[dict[str, str]]

    @property
    def is_old(self) -> bool:
        return self.client.release == APACHE_4

    def apaches(self, *words: str) -> str:
        return self.client.mqadmin(*self._filled(words), "-n", self.name_server)

    def ours(self, *words: str) -> str:
        words = (*self._filled(words), "-n", self.name_server, "--timeout", "60")
        done = CliRunner().invoke(mqadmin, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def _filled(self, words: tuple[str, ...]) -> list[str]:
        chosen = self.sent[3]
        places = {"BROKER": self.broker, "MESSAGE": chosen["msgId"], "PLACE": chosen["offsetMsgId"]}
        return [places.get(word, word) for word in words]


@pytest.fixture(scope="module")
def tools(servers: ApacheServers) -> Iterator[Tools]:
    client, names, broker = servers.client, servers.names, servers.broker.address
    client.create_topic(names, broker, TOPIC, QUEUES)
    sent = client.send(names, keyed_messages(TOPIC, QUEUES, MESSAGES))
    with client.member(names, GROUP, TOPIC) as member:
        member.received(MESSAGES)
        tools = Tools(client, names, broker, sent)
        wait_until(
            lambda: _has_committed(tools.apaches("consumerProgress", "-g", GROUP)), "committed offsets"
        )
        yield tools


def _has_committed(progress: str) -> bool:
    """Of a group that the broker does not know yet, it is said that it is not behind."""
    topics = [line.split()[0] for line in progress.splitlines() if line.strip()]
    return topics.count(TOPIC) == QUEUES and f"%RETRY%{GROUP}" in topics and "Diff Total: 0" in progress


def lines(text: str) -> list[str]:
    """Lines without the blanks that align them, in any order."""
    rows = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return sorted(row for row in rows if row)


def without_moments(text: str) -> list[str]:
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?|\b\d+\.\d+\b", "#", row) for row in lines(text)]


def route(text: str) -> TopicRouteData:
    """Apache's has keys that are no texts."""
    return json_body.decode(text.encode(), TopicRouteData)


def settings(text: str) -> dict[str, str]:
    """Names and values; the order of Java's hash tables means nothing."""
    pairs = (re.match(r"(\S+)\s*=\s*(.*)", line) for line in text.splitlines())
    return {pair[1]: pair[2].strip() for pair in pairs if pair is not None and not pair[1].startswith("=")}


def figure_names(text: str) -> list[str]:
    return sorted(line.partition(":")[0].strip() for line in text.splitlines() if line.strip())


def head_and_names(text: str) -> list[str]:
    """The titles of clusterList and which brokers it lists; its figures move."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return [
        " ".join(re.findall(r"#[^#]+?(?=\s*#|\s*$)", " ".join(rows[0]))),
        *(" ".join(row[:5]) for row in rows[1:]),
    ]


SAME: list[tuple[str, Callable[[str], object]]] = [
    ("topicList", lines),
    ("topicClusterList -t Orders", lines),
    ("topicRoute -t Orders", route),
    ("topicStatus -t Orders", without_moments),
    ("consumerProgress -g buyers", without_moments),
    ("consumerProgress", lines),
    ("consumerConnection -g buyers", lines),
    ("queryMsgByKey -t Orders -k key3", lines),
    ("getBrokerConfig -b BROKER", settings),
    ("getNamesrvConfig", settings),
    ("brokerStatus -b BROKER", figure_names),
    ("clusterList", head_and_names),
    ("clusterList -m", lines),
]


GREW_LATER = ("topicStatus -t Orders", "consumerProgress -g buyers", "clusterList")


@pytest.mark.parametrize(("command", "read"), SAME, ids=[command for command, _ in SAME])
def test_both_tools_say_the_same(tools: Tools, command: str, read: Callable[[str], object]) -> None:
    words = command.split()
    ours, apaches = tools.ours(*words), tools.apaches(*words)
    if not (tools.is_old and command in GREW_LATER):
        assert read(ours) == read(apaches)
    elif command == "clusterList":
        assert head_and_names(ours)[1:] == head_and_names(apaches)[1:]
    else:
        shared = table(apaches)
        assert shared
        assert [{title: row[title] for title in shared[0]} for row in table(ours)] == shared


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table by title."""
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    titles = next(row for row in rows if row[0].startswith("#"))
    found = [dict(zip(titles, row, strict=True)) for row in rows if len(row) == len(titles) and row != titles]
    return sorted(found, key=lambda row: list(row.values()))


# Names that no shell can pass as one word, and what 4.9 calls an option that has another meaning since.
NOT_OURS = {"--machine", "--print", "--cplus"}
# Apache has decodeMessageId and getConsumerStatus as classes that its tool does not list, and
# resumeCheckHalfMessage as an admin request without a command; its servers do not tell the rest.
ONLY_OURS = {
    "consumeTimeSpan",
    "decodeMessageId",
    "deleteLiteTopic",
    "diagnoseGroup",
    "drainBroker",
    "getConsumerStatus",
    "halfMessages",
    "listLiteTopics",
    "mirrorStatus",
    "namesrvDiff",
    "promoteMirror",
    "purgeQueue",
    "eraseMessages",
    "erasureStatus",
    "replicationStatus",
    "resumeCheckHalfMessage",
    "sparkCheckpoint",
    "tierStatus",
}
# Access control 1.0, which Apache's tool of 5.x does not know any more.
ONLY_OLD = {"updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr"}

# Lite topics and another store of pops, which came later than some of the releases.
ONLY_NEWER = {
    "exportPopRecord",
    "getBrokerLiteInfo",
    "getLiteClientInfo",
    "getLiteGroupInfo",
    "getLiteTopicInfo",
    "getParentTopicInfo",
    "triggerLiteDispatch",
}


def flags_of(explanation: str) -> set[str]:
    """The options of a command, as Apache's tool explains it: `-b,--brokerAddr <arg>   …`."""
    pairs = (re.match(r"\s+(-\w+)(?:,(--?\w+))?", line) for line in explanation.splitlines())
    return {flag for pair in pairs if pair is not None for flag in pair.groups() if flag}


def test_every_flag_of_apaches_commands_is_ours(tools: Tools) -> None:
    missing = {}
    with click.Context(mqadmin, info_name="mqadmin") as context:
        for name in (name for _, commands in NOUNS.values() for name in commands):
            command = mqadmin.get_command(context, name)
            assert command is not None
            ours = {flag for parameter in command.params for flag in parameter.opts} | {"-h", "--help"}
            explained = tools.client.mqadmin("help", name)
            if "not exist" in explained:
                # 4.9 had fewer commands.
                assert tools.is_old or name in ONLY_OURS | ONLY_OLD | ONLY_NEWER, name
                continue
            theirs = flags_of(explained)
            assert {"-n", "--namesrvAddr"} <= theirs, explained
            missing[name] = theirs - ours - NOT_OURS
    assert {name: flags for name, flags in missing.items() if flags} == {}


def test_every_command_of_apaches_is_ours_or_said_to_be_absent(tools: Tools) -> None:
    listed = re.findall(r"(?m)^   (\w+) ", tools.client.mqadmin())
    assert "clusterList" in listed
    ours = {name for _, commands in NOUNS.values() for name in commands}
    assert set(listed) - ours - ABSENT.keys() == set()
    assert ours.isdisjoint(ABSENT)


@pytest.mark.parametrize("which", ["MESSAGE", "PLACE"])
def test_a_message_is_the_same_in_both(tools: Tools, which: str) -> None:
    # 4.9 has another command for the ids of senders, and gives up at options that it does not know.
    theirs = "queryMsgByUniqueKey" if tools.is_old and which == "MESSAGE" else "queryMsgById"
    topic = () if tools.is_old and which == "PLACE" else ("-t", TOPIC)

    def read(text: str) -> dict[str, str]:
        pairs = (line.partition(":") for line in text.splitlines())
        shown = {label: value.strip() for label, _, value in pairs}
        wanted = ("Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "CommitLog Offset", "Store Timestamp")
        return {label: shown[label] for label in (*wanted, "Born Host", "Store Host", "System Flag")}

    shown = tools.ours("queryMsgById", "-t", TOPIC, "-i", which)
    assert read(shown) == read(tools.apaches(theirs, *topic, "-i", which))


def test_each_tool_sees_what_the_other_changed(tools: Tools) -> None:
    tools.ours("updateTopic", "-b", "BROKER", "-t", "Ours", "-r", "3", "-w", "3")
    tools.apaches("updateTopic", "-b", "BROKER", "-t", "Apaches", "-r", "3", "-w", "3")
    tools.ours("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "Ours", "-v", "broker-a:3")
    tools.ours("updateSubGroup", "-b", "BROKER", "-g", "ourgroup", "-r", "5")
    tools.ours("updateBrokerConfig", "-b", "BROKER", "-k", "fileReservedTime", "-v", "77")
    wait_until(lambda: "Ours" in tools.apaches("topicList").split(), "the route of our topic")
    wait_until(lambda: "Apaches" in tools.ours("topicList").split(), "the route of Apache's topic")
    assert "broker-a:3" in tools.apaches("updateOrderConf", "-t", "Ours", "-m", "get")
    assert re.search(r"retryMaxTimes\s+=\s+5", tools.apaches("getConsumerConfig", "-g", "ourgroup"))
    assert settings(tools.apaches("getBrokerConfig", "-b", "BROKER"))["fileReservedTime"] == "77"
    tools.ours("sendMessage", "-t", "Ours", "-p", "from ours", "-k", "ourkey", "-c", "TagO")
    wait_until(lambda: "from ours" in tools.apaches("printMsg", "-t", "Ours"), "our message")
    assert "from ours" in tools.ours("printMsg", "-t", "Ours", "-s", "TagO")
    assert "Avg RT" in tools.ours("checkMsgSendRT", "-t", "Ours", "-a", "2")


def test_a_group_is_sent_back_by_ours(tools: Tools) -> None:
    told = json.loads(tools.ours("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "--json"))
    assert [(queue["queueId"], queue["offset"]) for queue in told["queues"]] == [(0, 0), (1, 0)]


def test_apaches_consumer_reports_its_offsets(tools: Tools) -> None:
    rows = [
        line.split() for line in tools.ours("getConsumerStatus", "-g", GROUP, "-t", TOPIC).splitlines()[1:]
    ]
    assert sum(int(offset) for _, _, _, offset in rows) == MESSAGES
    assert [queue for _, _, queue, _ in rows] == [str(number) for number in range(QUEUES)]


@pytest.mark.parametrize("load", ["send", "latency", "transaction", "consume", "pull"])
def test_apaches_cluster_is_measured(tools: Tools, load: str) -> None:
    words = ["bench", load, "-n", tools.name_server, "--yes", "--quiet"]
    words += [
        "--duration",
        "0.5",
        "--warm-up",
        "0.5",
        "--messages",
        "500",
        "--rate" if load == "latency" else "-w",
        "50",
    ]
    done = CliRunner().invoke(COMMANDS, words)
    assert done.exit_code == 0, done.output
    assert re.search(rf"{load}: [\d,]+ messages of 1.02 kB in .* s, 0 failed\nrate ", done.stdout)
