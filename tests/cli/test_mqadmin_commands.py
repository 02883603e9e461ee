"""Every command of mqadmin against a running cluster: what people see, what scripts get, what goes wrong."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyromq.admin.messages import SENDER_GROUP
from pyromq.cli.mqadmin.commands import NOUNS
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.testing import RunningCluster, cluster

TOPIC, GROUP = "orders", "shop"
TRACES = "traces"
ON = ("-c", "DefaultCluster")
PATIENTLY = ("--timeout", "60")


@dataclass(frozen=True)
class Tool:
    """mqadmin at one cluster."""

    running: RunningCluster
    message_id: str = ""
    offset_id: str = ""

    def __call__(self, *words: str) -> Result:
        filled = [
            word.format(broker=self.running.broker_address, id=self.message_id, offset_id=self.offset_id)
            if word in ("{broker}", "{id}", "{offset_id}")
            else word
            for word in words
        ]
        return CliRunner().invoke(
            mqadmin, [*filled, *PATIENTLY], prog_name="mqadmin", env={"NAMESRV_ADDR": self.running.namesrv}
        )

    def text(self, *words: str) -> str:
        done = self(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    """At a cluster that nobody changes."""
    with filled_cluster(tmp_path_factory.mktemp("cluster")) as filled:
        yield filled


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Tool]:
    """At a cluster of the test's own."""
    with filled_cluster(tmp_path / "cluster") as filled:
        yield filled


@contextmanager
def filled_cluster(store: Path) -> Iterator[Tool]:
    with cluster(store) as running:
        first = Tool(running)
        first.text("updateTopic", *ON, "-t", TOPIC, "-r", "2", "-w", "2")
        first.text("updateSubGroup", *ON, "-g", GROUP)
        sent = [
            first.data(
                "sendMessage", "-t", TOPIC, "-p", body, "-c", tag, "-k", "k1", "-b", "broker-a", "-i", "0"
            )
            for body, tag in (("hello", "A"), ("wörld", "B"), ("tab\there", "A"))
        ]
        first.text("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        report_what_was_done(first, sent[0]["messageId"])
        yield Tool(running, sent[0]["messageId"], sent[0]["offsetMessageId"])


def report_what_was_done(tool: Tool, message_id: str) -> None:
    """As clients do: records of fields, those of one message among those of others."""
    others = "0" * 32
    records = [
        f"Pub 0 region tills orders {message_id} A k1 host:1 5 3 0 place true",
        f"Pub 0 region others orders {others} A k1 host:1 5 3 0 place true",
        f"SubBefore 0 region shop request {message_id} 0 k1",
        f"SubAfter request {message_id} 7 false k1 4 0 shop",
        f"SubAfter request {message_id} much true k1 4 0 broken",
    ]
    body = "".join(record.replace(" ", "\x01") + "\x02" for record in records)
    tool.text("updateTopic", *ON, "-t", TRACES, "-r", "1", "-w", "1")
    tool.text("sendMessage", "-t", TRACES, "-p", body, "-k", f"{message_id} {others}")


WATCH = ("--watch", "0.01", "--rounds", "2")

READS: list[tuple[list[str], str]] = [
    (["topicStatus", "-t", TOPIC, *WATCH], r"#In/s +#Trend\n(.*\n)+.*, every 0\.01 s\n(.*\n)+.* 0\.0 +▁▁?\n"),
    (["consumerProgress", "-g", GROUP, *WATCH], r"#Trend\n(.*\n)+.*, every 0\.01 s\n(.*\n)+.* ▁*█*\n"),
    (["consumerProgress", *WATCH], r"(?s)every 0\.01 s.*every 0\.01 s"),
    (["brokerStatus", "-b", "broker-a", *WATCH], r"#In/s +#In Trend"),
    (["clusterList"], r"#Cluster Name +#Broker Name +#BID +#Addr +#Version +#InTPS\(LOAD\) +#OutTPS\(LOAD\)"),
    (
        ["clusterList"],
        r"DefaultCluster +broker-a +0 +127\.0\.0\.1:\d+ +V5_3_3 +[\d.]+\(0,0ms\) +[\d.]+\(0,0ms\|0,0ms\)"
        r" +\d+-\d+\(0\.0w, 0\.0, 0\.0\) .* true",
    ),
    (["clusterList", "-m"], r"#InTotalYest +#OutTotalYest +#InTotalToday +#OutTotalToday"),
    (["clusterList", *ON], r"broker-a"),
    (["topicList"], r"(?m)^orders$"),
    (["topicList", "-c"], r"DefaultCluster +orders +shop"),
    (["topicRoute", "-t", TOPIC, "-l"], r"DefaultCluster +broker-a +\{0=127\.0\.0\.1:\d+\} +2 +2 +6"),
    (["topicRoute", "-t", TOPIC], r'"brokerDatas"'),
    (["topicStatus", "-t", TOPIC], r"#Broker Name +#QID +#Min Offset +#Max Offset +#Last Updated"),
    (["topicStatus", "-t", TOPIC], r"broker-a +0 +0 +3 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"),
    (["topicStatus", "-t", TOPIC, "-c", "DefaultCluster"], r"broker-a +1 +0 +0\n"),
    (["topicStatus", "-t", TOPIC], r"Topic Put TPS: \d"),
    (["topicClusterList", "-t", TOPIC], r"^DefaultCluster$"),
    (["allocateMQ", "-t", TOPIC, "-i", "a,b"], r'"result"'),
    (["statsAll"], r"#Topic +#Consumer Group +#Accumulation +#InTPS +#OutTPS +#InMsg24Hour +#OutMsg24Hour"),
    (["statsAll", "-t", TOPIC], r"orders +shop +3 "),
    (
        ["consumerProgress", "-g", GROUP],
        r"#Topic +#Broker Name +#QID +#Broker Offset +#Consumer Offset +#Diff",
    ),
    (["consumerProgress", "-g", GROUP], r"orders +broker-a +0 +3 +0 +3 +0 +N/A"),
    (["consumerProgress", "-g", GROUP, "-t", TOPIC], r"Consume Diff Total: 3\nConsume Inflight Total: 0"),
    (["consumerProgress", "-g", GROUP, "-s", "true"], r"#Consumer Offset +#Client IP +#Diff"),
    (["consumerProgress"], r"#Group +#Count +#Version +#Type +#Model +#TPS +#Diff Total"),
    (["startMonitoring", "--rounds", "1"], r"#Group +#Topic +#Undone +#Undone In One Queue +#Delay\(ms\)"),
    (["brokerConsumeStats", "-b", "{broker}"], r"orders +shop +broker-a +0 +3 +0 +3 +N/A\n\nDiff Total: 3"),
    (["getConsumerConfig", "-g", GROUP], r"=DefaultCluster:broker-a=+\n(.*\n)*retryMaxTimes +=  16"),
    (["brokerStatus", "-b", "{broker}"], r"brokerVersionDesc +: V5_3_3"),
    (["brokerStatus", "-b", "broker-a"], r"commitLogMaxOffset +: \d+"),
    (["haStatus", "-b", "broker-a"], r"#MasterCommitLogMaxOffset +\d+\n#SlaveNum +0\n#InSyncSlaveNum +0\n"),
    (["haStatus", *ON], r"#SlaveAddr +#SlaveAckOffset +#Diff +#TransferSpeed\(KB/s\)"),
    (["tierStatus", "-b", "broker-a"], r"127\.0\.0\.1:\d+ has no tier"),
    (["tierStatus", *ON], r"127\.0\.0\.1:\d+ has no tier"),
    (["mirrorStatus", "-b", "broker-a"], r"127\.0\.0\.1:\d+ is not a mirror"),
    (["mirrorStatus", *ON], r"127\.0\.0\.1:\d+ is not a mirror"),
    (["halfMessages"], r"broker-a +127\.0\.0\.1:\d+ +0 +0\.0 s"),
    (["brokerStatus", *ON], r"127\.0\.0\.1:\d+ +brokerVersionDesc +: V5_3_3"),
    (["getBrokerConfig", "-b", "broker-a"], r"=127\.0\.0\.1:\d+=+\n(.*\n)*brokerName +=  broker-a"),
    (["getBrokerConfig", *ON, "-k", "brokername"], r"=Master: 127\.0\.0\.1:\d+=+\nbrokerName +=  broker-a\n"),
    (["producer", "-b", "broker-a"], r"#Group +#ClientId"),
    (["consumeTimeSpan", "-g", GROUP, "-t", TOPIC], r"broker-a +0 +\d{4}-.* +\d{4}-.* +\d+\.\d s"),
    (["replicationStatus"], r"broker-a +0 +127\.0\.0\.1:\d+ +master +\d+ +- +"),
    (["diagnoseGroup", "-g", GROUP], r"offline +no member of group shop is online"),
    (["namesrvDiff"], r"^1 name servers compared, \d+ topics, 0 differences\n$"),
    (["getNamesrvConfig"], r"=127\.0\.0\.1:\d+=+\n(.*\n)*listenPort +=  \d+"),
    (["queryMsgById", "-t", TOPIC, "-i", "{id}"], r"OffsetID: +7F000001[0-9A-F]{24}\n"),
    (["queryMsgById", "-t", TOPIC, "-i", "{offset_id}"], r"Message Body: +hello\n"),
    (["queryMsgByUniqueKey", "-t", TOPIC, "-i", "{id}"], r"Tags: +\[A\]\nKeys: +\[k1\]"),
    (["queryMsgByUniqueKey", "-t", TOPIC, "-i", "{id}"], r"consumerGroup=shop, trackType=NOT_ONLINE"),
    (["decodeMessageId", "-i", "{id}"], r"ip=[\d.]+\ndate=\d{4}-.*,\d{3}\npid=\d+\nnumber=\d+\n"),
    (["queryMsgByKey", "-t", TOPIC, "-k", "k1"], r"#Message ID +#QID +#Offset\n[0-9A-F]{32} +0 +0\n"),
    (["queryMsgByKey", "-t", TOPIC, "-k", "k1", "-m", "1"], r"^#Message ID.*\n.* +0 +2\n$"),
    (["queryMsgByKey", "-t", TOPIC, "-k", "k1", "-e", "1"], r"^#Message ID.*\n$"),
    (["queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1"], r"Message Body: +wörld"),
    (
        ["queryMsgTraceById", "-t", TRACES, "-i", "{id}"],
        r"#Type +#ProducerGroup +#ClientHost +#SendTime +#CostTimes +#Status\n"
        r"Pub +tills +127\.0\.0\.1 +19\S* \S+ +3ms +success\n\n"
        r"#Type +#ConsumerGroup +#ClientHost +#ConsumerTime +#CostTimes +#Status\n"
        r"Sub +shop +127\.0\.0\.1 +19\S* \S+ +7ms +failed\n$",
    ),
    (["queryCq", "-t", TOPIC, "-q", "0", "-i", "1"], r"max: 3\nmin: 0\n"),
    (["queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "1"], r"\n1 +\d+ +\d+ +66 +false\n$"),
    (
        ["printMsg", "-t", TOPIC],
        r"minOffset=0, maxOffset=3, MessageQueue \[topic=orders, brokerName=broker-a, q",
    ),
    (["printMsg", "-t", TOPIC], r"queueOffset=2, .* tags=A, keys=k1 BODY: tab\\there\n"),
    (["printMsg", "-t", TOPIC, "-d", "false"], r"BODY: NOT PRINT BODY"),
    (["printMsg", "-t", TOPIC, "-b", "now"], r"minOffset=3, maxOffset=3"),
    (
        ["printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "0", "-f", "true"],
        r"^Tag: A +Count: 2\nTag: B +Count: 1$",
    ),
    (
        ["printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true"],
        r"BODY: hello",
    ),
    (["consumeMessage", "-t", TOPIC, "-c", "1"], r"^MSGID: .* BODY: hello\n$"),
    (["consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1", "-c", "1"], r"BODY: wörld\n$"),
]


@pytest.mark.parametrize(
    ("words", "expected"), READS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_command_shows(tool: Tool, words: list[str], expected: str) -> None:
    shown = tool.text(*words)
    assert re.search(expected, shown), shown


DATA: list[tuple[list[str], str, Any]] = [
    (["clusterList"], "brokers.0.brokerName", "broker-a"),
    (["clusterList"], "brokers.0.activated", True),
    (["clusterList"], "brokers.0.in.queued", 0),
    (["clusterList"], "brokers.0.out.acksQueued", 0),
    (["clusterList"], "brokers.0.timer.congestedTenThousands", 0),
    (["clusterList"], "brokers.0.pageCacheWaitMs", 0),
    (["clusterList", "-m"], "brokers.0.inYesterday", 0),
    (["topicList", "-c"], "topics.0.cluster", "DefaultCluster"),
    (["topicRoute", "-t", TOPIC], "queueDatas.0.readQueueNums", 2),
    (["topicStatus", "-t", TOPIC], "queues.0.maxOffset", 3),
    (["topicClusterList", "-t", TOPIC], "clusters", ["DefaultCluster"]),
    (["allocateMQ", "-t", TOPIC, "-i", "a,b"], "result.b.0.queueId", 1),
    (["statsAll", "-t", TOPIC], "topics.0.accumulation", 3),
    (["consumerProgress", "-g", GROUP], "diffTotal", 3),
    (["consumerProgress", "-g", GROUP], "queues.0.lastTime", 0),
    (["consumerProgress"], "groups.0.group", GROUP),
    (["brokerConsumeStats", "-b", "broker-a"], "diffTotal", 3),
    (["getConsumerConfig", "-g", GROUP], "brokers.0.config.retryMaxTimes", 16),
    (["brokerStatus", "-b", "broker-a"], "brokerVersionDesc", "V5_3_3"),
    (["namesrvDiff"], "hasComparedRoutes", True),
    (["diagnoseGroup", "-g", GROUP], "findings.0.fault", "offline"),
    (["replicationStatus"], "members.0.isMaster", True),
    (["producer", "-b", "broker-a"], "producers", []),
    (["queryMsgById", "-t", TOPIC, "-i", "{id}"], "message.body", "hello"),
    (["queryMsgByKey", "-t", TOPIC, "-k", "k1"], "messages.1.properties.TAGS", "B"),
    (["queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1"], "message.queueOffset", 1),
    (["queryMsgTraceById", "-t", TRACES, "-i", "{id}"], "traces.1.group", GROUP),
    (["queryCq", "-t", TOPIC, "-q", "0", "-i", "1"], "entries.0.index", 1),
    (["consumeMessage", "-t", TOPIC, "-c", "1"], "body", "hello"),
    (["cleanExpiredCQ"], "addresses.0", "127.0.0.1"),
]


@pytest.mark.parametrize(
    ("words", "path", "expected"), DATA, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_script_gets(tool: Tool, words: list[str], path: str, expected: Any) -> None:
    found = tool.data(*words)
    for step in path.split("."):
        found = found[int(step) if step.isdigit() else step]
    if path == "addresses.0":
        found = found.partition(":")[0]
    assert found == expected


def test_messages_in_json_come_one_on_a_line(tool: Tool) -> None:
    lines = tool.text("printMsg", "-t", TOPIC, "--json").splitlines()
    assert [json.loads(line)["body"] for line in lines] == ["hello", "wörld", "tab\there"]
    assert all(json.loads(line)["brokerName"] == "broker-a" for line in lines)


def test_the_checkpoint_of_a_streaming_query_is_compared_with_the_brokers(tool: Tool, tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{}\n{"v":1,"q":{"orders":{"broker-a:0":1}}}\n')
    (tmp_path / "commits" / "3").write_text("v1\n{}\n")
    shown = tool.text("sparkCheckpoint", "-d", str(tmp_path))
    assert re.search(r"Committed Batch: 3\n", shown), shown
    assert re.search(r"orders +broker-a +0 +1 +3 +2 +0\n", shown), shown
    told = tool.data("sparkCheckpoint", "-d", str(tmp_path))
    assert (told["unread"], told["minUnread"], told["maxUnread"]) == (2, 2, 2)
    assert tool.data("sparkCheckpoint", "-d", str(tmp_path), "-t", "others")["queues"] == []
    assert tool("sparkCheckpoint", "-d", str(tmp_path / "none")).exit_code == 2


WRITES: list[tuple[list[str], str]] = [
    (
        ["updateTopic", *ON, "-t", "made", "-o", "true"],
        r"create topic to .* success\.\nset cluster orderConf",
    ),
    (
        ["updateTopic", "-b", "{broker}", "-t", "made2", "-o", "true", "-a", "+message.type=NORMAL"],
        r"set broker order.*\nTopicConfig \[attributes=.*\+message\.type.*NORMAL",
    ),
    (["updateTopicPerm", *ON, "-t", "made", "-p", "4"], r"update topic perm from 6 to 4 in 127.* success\."),
    (["updateTopicPerm", "-b", "broker-a", "-t", "made", "-p", "6"], r"from 4 to 6"),
    (["updateOrderConf", "-t", "made", "-m", "put", "-v", "broker-a:4"], r"orderConf=\[broker-a:4\]"),
    (["updateOrderConf", "-t", "made", "-m", "get"], r"get orderConf success.*orderConf=\[broker-a:4\]"),
    (["updateOrderConf", "-t", "made", "-m", "delete"], r"delete orderConf success"),
    (["purgeQueue", "-t", "made", *ON], r"#Broker +#QID +#Min Offset"),
    (["eraseMessages", "-t", "made", *ON, "-k", "who"], r"who +0\n\nNothing is changed yet: add --yes\."),
    (["eraseMessages", "-t", "made", *ON, "-k", "who", "--yes"], r"127\.0\.0\.1:\d+ erases them"),
    (["erasureStatus", "-t", "made", *ON], r"127\.0\.0\.1:\d+ +who +.*(gone|not yet)"),
    (
        ["updateStaticTopic", "-t", "fixed", "-qn", "2", "-c", "DefaultCluster", "--plan"],
        r"#QID +#Broker Name +#Broker QID +#Parts\n0 +broker-a +0 +1\n1 +broker-a +1 +1\n\n"
        r"Nothing is changed yet",
    ),
    (["updateStaticTopic", "-t", "fixed", "-qn", "2", "-b", "broker-a"], r"epoch \d+ is in force"),
    (["deleteTopic", "-t", "fixed", *ON], r"delete topic \[fixed\]"),
    (["deleteTopic", "-t", "made", *ON], r"delete topic \[made\] from cluster \[DefaultCluster\] success\."),
    (
        ["updateSubGroup", "-b", "{broker}", "-g", "made", "-r", "3"],
        r"create subscription group to .* success\.\n",
    ),
    (["updateSubGroup", *ON, "-g", "made", "-p", '{"type":"EXPONENTIAL"}'], r'"type": "EXPONENTIAL"'),
    (["cloneGroupOffset", "-s", GROUP, "-d", "made", "-t", TOPIC], r"clone group offset success\."),
    (
        ["skipAccumulatedMessage", "-g", "made", "-t", TOPIC],
        r"#brokerName +#queueId +#offset\nbroker-a +0 +3",
    ),
    (
        ["resetOffsetByTime", "-g", "made", "-t", TOPIC, "-s", "now"],
        r"start reset consumer .*\n\n.*\nbroker-a +0 +3",
    ),
    (["resetOffsetByTime", "-g", "made", "-t", TOPIC, "-s", "2001-01-01#00:00:00:000"], r"broker-a +0 +0"),
    (
        ["resetOffsetByTime", "-g", "made", "-t", TOPIC, "-s", "0", "-b", "broker-a", "-q", "0", "-o", "2"],
        r"offset to 2",
    ),
    (["deleteSubGroup", *ON, "-g", "made", "-r", "true"], r"delete subscription group \[made\] from cluster"),
    (
        ["updateBrokerConfig", "-b", "{broker}", "-k", "fileReservedTime", "-v", "24"],
        r"update broker config success",
    ),
    (
        ["updateBrokerConfig", *ON, "-k", "fileReservedTime", "-v", "72", "-a", "true"],
        r"update broker config success",
    ),
    (["drainBroker", "-b", "broker-a"], r"^broker-a/0 \(127.*\) is read-only\n$"),
    (["drainBroker", "-b", "broker-a", "--undo"], r"^broker-a/0 \(127.*\) is writable\n$"),
    (
        ["setCommitLogReadAheadMode", "-b", "broker-a", "-m", "1"],
        r"^=+127\.0\.0\.1:\d+=+\ncommitLog set readAhead mode rstStrdataReadAheadEnable is false\n$",
    ),
    (["getBrokerConfig", "-b", "broker-a", "-k", "dataReadAhead"], r"dataReadAheadEnable +=  false\n"),
    (["setCommitLogReadAheadMode", *ON, "-m", "0"], r"^=+Master: .*\n.*dataReadAheadEnable is true\n$"),
    (
        ["setConsumeMode", *ON, "-t", TOPIC, "-g", GROUP, "-m", "POP", "-q", "2"],
        r"^set consume mode to 127.* success\.\n"
        r"topic\[orders\] group\[shop\] consume mode\[POP\] popShareQueueNum\[2\]\n",
    ),
    (["setConsumeMode", "-b", "{broker}", "-t", TOPIC, "-g", GROUP, "-m", "PULL"], r"consume mode\[PULL\]"),
    (["resetMasterFlushOffset", "-b", "broker-a", "-o", "7"], r"^reset master flush offset to 7 success\n"),
    (["cleanExpiredCQ"], r"^success\n"),
    (["deleteExpiredCommitLog", "-b", "broker-a"], r"^success\n"),
    (["cleanUnusedTopic", *ON], r"^success\n"),
    (
        ["exportPopRecord", "-b", "broker-a"],
        r"^Export broker records, brokerName=broker-a, brokerAddr=127\.0\.0\.1:\d+, dryRun=false\n$",
    ),
    (["exportPopRecord", "-c", "DefaultCluster", "-d", "true"], r"^.*brokerName=broker-a, .*dryRun=true\n$"),
    (
        ["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"],
        r"success!127.*\norderMessageEnable : true",
    ),
    (
        ["updateKvConfig", "-s", "ns", "-k", "a", "-v", "b"],
        r"create or update kv config to namespace success\.",
    ),
    (["deleteKvConfig", "-s", "ns", "-k", "a"], r"delete kv config from namespace success\."),
    (
        ["wipeWritePerm", "-b", "broker-a"],
        r"wipe write perm of broker\[broker-a\] in name server\[.*\] OK, \d+",
    ),
    (
        ["addWritePerm", "-b", "broker-a"],
        r"add write perm of broker\[broker-a\] in name server\[.*\] OK, \d+",
    ),
    (
        ["sendMessage", "-t", "made2", "-p", "x"],
        r"#Broker Name +#QID +#Send Result +#MsgId\nbroker-a +\d +SEND_OK",
    ),
    (["checkMsgSendRT", "-t", "made2", "-a", "2"], r"#RT\nbroker-a +0 +true +[\d.]+\n(.*\n)*Avg RT: \d"),
    (["sendMsgStatus", "-b", "broker-a", "-c", "2"], r"(rt=[\d.]+ms, SendResult=SEND_OK .*\n){2}"),
    (
        ["clusterRT", "-a", "2", "--rounds", "1"],
        r"#RT +#successCount +#failCount\nDefaultCluster +broker-a +[\d.]+ +2 +0",
    ),
    (
        ["clusterRT", "-a", "1", "--rounds", "1", "-p", "true", "-m", "room"],
        r"\|room\|DefaultCluster\|broker-a\|\d",
    ),
    (["queryMsgById", "-t", TOPIC, "-i", "{id}", "-s", "true"], r"resent msg\. originalMsgId=.* SEND_OK"),
]


def test_commands_do_what_they_say(workshop: Tool) -> None:
    """One after the other: what one makes, the next one changes."""
    for words, expected in WRITES:
        shown = workshop.text(*words)
        assert re.search(expected, shown), (words, shown)


TRACED = ("sendMessage", "-t", "traced", "-p", "x", "-k", "t-1", "-m", "true")
TRACED_TOPIC = ("updateTopic", *ON, "-t", "traced", "-r", "1", "-w", "1")


def test_a_message_that_is_sent_with_a_trace_can_be_traced(workshop: Tool) -> None:
    workshop.text(*TRACED_TOPIC)
    receipt = workshop.data(*TRACED)
    (trace,) = workshop.data("queryMsgTraceById", "-i", receipt["messageId"])["traces"]
    assert (trace["kind"], trace["group"], trace["isOk"]) == ("Pub", SENDER_GROUP, True)
    (report,) = workshop.data("queryMsgByKey", "-t", TRACE_TOPIC, "-k", "t-1")["messages"]
    assert f"{workshop.running.broker_address}\x011\x01" in report["body"]


def test_nothing_is_sent_with_a_trace_where_traces_have_no_topic() -> None:
    with cluster(trace_topic_enabled=False) as running:
        tool = Tool(running)
        tool.text(*TRACED_TOPIC)
        refused = tool(*TRACED)
        assert refused.exit_code == 1
        assert "nothing was sent: there is no topic RMQ_SYS_TRACE_TOPIC" in refused.stderr
        assert "traceTopicEnable=true" in refused.stderr
        assert tool.data("topicStatus", "-t", "traced")["queues"][0]["maxOffset"] == 0


FAILURES: list[tuple[list[str], int, str]] = [
    (["queryMsgTraceById", "-t", TRACES, "-i", "AB"], 1, "clients write traces only if tracing is enabled"),
    (["cleanExpiredCQ", "--cluster", "elsewhere"], 1, "there is no cluster elsewhere"),
    (["topicRoute", "-t", "ordrs"], 1, "Error: there is no topic ordrs; did you mean orders?"),
    (
        ["topicStatus", "-t", "zzz"],
        1,
        "`mqadmin topicList` lists all topics, `mqadmin updateTopic` creates one",
    ),
    (
        ["topicList", "-n", "127.0.0.1:1"],
        1,
        "is one running there? Set another address with -n host:port",
    ),
    (["topicList", "-n", "nonsense"], 1, "'nonsense' is not an address; expected host:port"),
    (["topicList", "-n", " "], 1, "no name server given; set -n host:port or NAMESRV_ADDR"),
    (["purgeQueue", "-t", "x", *ON, "-o", "5"], 2, "--offset needs the queue: -q"),
    (["eraseMessages", "-t", "x", *ON, "-k", ","], 2, "-k is empty: expected key1,key2"),
    (["updateStaticTopic", "-t", "x", "-b", "broker-a"], 2, "give the number of queues: -qn"),
    (["updateStaticTopic", "-t", "x", "-qn", "2"], 2, "give either -b BROKERS or -c CLUSTERS"),
    (["updateStaticTopic", "-t", TOPIC, "-qn", "2", "-b", "broker-a"], 1, "is not static"),
    (["remappingStaticTopic", "-t", "x", "-b", "broker-a"], 1, "there is no static topic x"),
    (["remappingStaticTopic", "-t", "x", "-b", "nobody"], 1, "there is no broker nobody"),
    (["updateTopic", "-t", "x"], 2, "give either -b BROKER or -c CLUSTER"),
    (["updateTopic", "-t", "x", "-b", "b", "-c", "c"], 2, "give either -b BROKER or -c CLUSTER"),
    (["updateTopic", "-t", "x y", *ON], 1, "illegal characters"),
    (["updateTopic", "-t", "x", "-c", "Other"], 1, "there is no cluster Other; known: DefaultCluster"),
    (["brokerStatus", "-b", "broker-b"], 1, "there is no broker broker-b; did you mean broker-a?"),
    (["brokerStatus", "-b", "127.0.0.1:1"], 1, "running there? `mqadmin clusterList` shows the"),
    (
        ["cleanExpiredCQ", "-b", "127.0.0.1:1"],
        1,
        "running there? `mqadmin clusterList` shows the",
    ),
    (
        ["getBrokerConfig", *ON, "-k", "fileResrvedTime"],
        1,
        "fileResrvedTime; did you mean fileReser",
    ),
    (["updateBrokerConfig", *ON, "-k", "fileResrvedTime", "-v", "1"], 1, "did you mean fileReservedTime?"),
    (["updateNamesrvConfig", "-k", "zzz", "-v", "1"], 1, "has no setting zzz; nothing was changed"),
    (["consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "7"], 1, "has no such readable queue on broker"),
    (
        ["printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "7", "-p", "true"],
        1,
        "`mqadmin topicRoute -l -t orders` shows its queues",
    ),
    (["consumerProgress", "-g", "nobody"], 1, "group nobody has no offsets and no member is online"),
    (["consumerConnection", "-g", "nobody"], 1, "no member of group nobody is online"),
    (["getConsumerStatus", "-g", "nobody", "-t", TOPIC], 1, "no member of group nobody answered; `mqadmin"),
    (["decodeMessageId", "-i", "xyz"], 1, "unique key 'xyz' has 3 characters, not 32 or 56"),
    (
        ["producerConnection", "-g", "x", "-t", TOPIC],
        1,
        "no producer of group x is connected to the brokers of topic orders",
    ),
    (["getConsumerConfig", "-g", "shp"], 1, "there is no group shp; did you mean shop?"),
    (["cloneGroupOffset", "-s", GROUP, "-d", "gone", "-t", TOPIC], 1, "`mqadmin updateSubGroup` creates it"),
    (["queryMsgById", "-t", TOPIC, "-i", "0" * 32], 1, "is it the right topic?"),
    (["queryMsgById", "-t", TOPIC, "-i", "{id}", "-g", GROUP], 2, "-g and -d must be given together"),
    (["queryMsgByUniqueKey", "-t", TOPIC, "-i", "x"], 1, "for an offset id, try queryMsgById"),
    (["queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "99"], 1, "which has 0 to"),
    (
        ["queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "9", "-o", "0"],
        1,
        "queue 9 is not one of the 2",
    ),
    (
        ["queryMsgById", "-t", TOPIC, "-i", "{id}", "-f", "klingon"],
        2,
        "unknown charset klingon; try UTF-8",
    ),
    (["printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "0"], 2, "-p true prints the messages"),
    (["consumeMessage", "-t", TOPIC, "-i", "0"], 2, "-i needs -b"),
    (["consumeMessage", "-t", TOPIC, "-o", "0"], 2, "it needs -b and -i"),
    (["consumeMessage", "-t", TOPIC, "-s", "5", "-e", "4"], 2, "-s must not be later than -e"),
    (["sendMessage", "-t", TOPIC, "-p", "x", "-i", "0"], 2, "-i needs -b"),
    (
        ["sendMessage", "-t", TOPIC, "-p", "x", "-b", "broker-a", "-i", "7"],
        1,
        "no such writable queue on broker",
    ),
    (
        ["resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "yesterday"],
        2,
        "'yesterday' is not a time",
    ),
    (
        ["resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-q", "0"],
        2,
        "-b and -q must be given together",
    ),
    (
        ["resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-o", "0"],
        2,
        "it needs -b BROKER and -q QUEUE",
    ),
    (
        ["updateBrokerConfig", "-b", "broker-a", "-k", "fileReservedTime", "-v", "x"],
        1,
        "expected a whole number",
    ),
    (["updateOrderConf", "-t", TOPIC, "-m", "put"], 2, "-m put needs the queues"),
    (["updateSubGroup", *ON, "-g", "x", "-p", "nonsense"], 2, "is not a retry policy"),
    (["updateSubGroup", *ON, "-g", "x", "--attributes", "a=b"], 2, "expected +key=value or -key"),
    (["updateTopicList", *ON, "-f", "/nowhere"], 1, "cannot read /nowhere"),
    (["allocateMQ", "-t", TOPIC, "-i", " , "], 2, "-i is empty"),
    (["exportConfigs", *ON, "-f", "/dev/null/x"], 1, "cannot write /dev/null/x"),
    (["topicLst"], 2, "unknown command topicLst; did you mean topicList?"),
    (["dumpCompactionLog"], 2, "does not have dumpCompactionLog: compacted topics have no log of their own"),
    (["ADDBROKER", "-b", "x"], 2, "does not have ADDBROKER: broker containers are not supported"),
    (["xyz"], 2, "unknown command xyz; `mqadmin help` lists all commands"),
    (["topicList", "--key-file", "/nowhere"], 1, "key_file=/nowhere: expected a readable file"),
]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    FAILURES,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_failure_says_what_to_try(tool: Tool, words: list[str], code: int, expected: str) -> None:
    done = tool(*words)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert expected in last


def test_every_command_is_tried_here_or_with_clients_or_controllers() -> None:
    with_clients = {
        "consumerStatus",
        "remappingStaticTopic",
        "getConsumerStatus",
        "consumerConnection",
        "producerConnection",
        "resumeCheckHalfMessage",
    }
    with_files = {"exportConfigs", "exportMetadata", "exportMetrics", "updateTopicList", "updateSubGroupList"}
    with_files |= {"sparkCheckpoint"}
    elsewhere = {name for noun in ("access", "controllers", "lite", "mirrors") for name in NOUNS[noun][1]}
    tried = {words[0] for words, *_ in [*READS, *WRITES]} | with_clients | with_files | elsewhere
    assert tried == {name for _, commands in NOUNS.values() for name in commands}


def test_what_is_exported_can_be_made_again(workshop: Tool, tmp_path: Path) -> None:
    assert workshop.data("exportMetadata", *ON, "-f", str(tmp_path)) == {
        "path": str(tmp_path / "metadata.json")
    }
    found = json.loads((tmp_path / "metadata.json").read_bytes())
    # The file itself, with a topic that has attributes.
    made = ("updateTopic", *ON, "-t", "typed", "-a", "+message.type=FIFO")
    assert "success" in workshop.text(*made)
    workshop.data("exportMetadata", *ON, "-f", str(tmp_path))
    assert "success" in workshop.text("deleteTopic", *ON, "-t", "typed")
    for command in ("updateTopicList", "updateSubGroupList"):
        assert "success" in workshop.text(command, *ON, "-f", str(tmp_path / "metadata.json"))
    workshop.data("exportMetadata", *ON, "-f", str(tmp_path / "again"))
    before, after = (
        json.loads((directory / "metadata.json").read_bytes()) for directory in (tmp_path, tmp_path / "again")
    )
    assert after["topicConfigTable"] == before["topicConfigTable"]
    assert after["topicConfigTable"]["typed"]["attributes"] == {"message.type": "FIFO"}
    assert after["subscriptionGroupTable"] == before["subscriptionGroupTable"]

    topics = [dict(found["topicConfigTable"][TOPIC], topicName="copied", attributes={})]
    groups = [dict(found["subscriptionGroupTable"][GROUP], groupName="copied")]
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    assert "success" in workshop.text("updateTopicList", *ON, "-f", str(tmp_path / "topics.json"))
    assert "success" in workshop.text(
        "updateSubGroupList", "-b", "broker-a", "-f", str(tmp_path / "groups.json")
    )
    assert workshop.data("topicRoute", "-t", "copied")["queueDatas"][0]["readQueueNums"] == 2
    assert workshop.data("getConsumerConfig", "-g", "copied")["brokers"][0]["config"]["groupName"] == "copied"


@pytest.mark.parametrize(
    ("words", "file", "keys"),
    [
        (["exportConfigs", *ON], "configs.json", {"brokerConfigs", "clusterScale"}),
        (["exportMetrics", *ON], "metrics.json", {"evaluateReport", "totalData"}),
        (["exportMetadata", *ON, "-t"], "topic.json", {"topicConfigTable", "exportTime"}),
        (
            ["exportMetadata", "-b", "broker-a", "-g"],
            "subscriptionGroup.json",
            {"subscriptionGroupTable", "exportTime"},
        ),
    ],
)
def test_exports_are_written_under_apaches_names(
    tool: Tool, tmp_path: Path, words: list[str], file: str, keys: set[str]
) -> None:
    assert tool.text(*words, "-f", str(tmp_path)) == f"export {tmp_path / file} success\n"
    assert json.loads((tmp_path / file).read_bytes()).keys() == keys


def test_a_damaged_file_is_refused_with_its_name(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('[{"perm": 6}]')
    done = tool("updateTopicList", *ON, "-f", str(tmp_path / "topics.json"))
    assert done.exit_code == 1
    assert "topics.json has unexpected content" in done.stderr
