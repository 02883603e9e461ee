"""Java's JSON: each oddity of fastjson 1.2.83 read and written, everything else refused with one error."""

import json
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from tests.support.places import GOLDEN

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol import fastjson_reader, fastjson_references, json_body
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.inspection import ConsumerRunningInfo, ConsumeStats, OffsetWrapper
from pyromq.protocol.requests.kv import KVTable
from pyromq.protocol.requests.membership import HeartbeatData, ProducerTableInfo, SubscriptionData
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, ResetOffsetBody
from pyromq.protocol.requests.routes import BrokerData, QueueData, TopicRouteData
from pyromq.protocol.requests.topics import TopicConfig, TopicQueueMappingDetail

ODDITIES = GOLDEN / "bodies" / "oddities"


def oddity(name: str) -> bytes:
    """A document that fastjson itself wrote."""
    return (ODDITIES / f"{name}.json").read_bytes()


class Colour(StrEnum):
    RED = "RED"
    GREEN = "GREEN"


class Flat(msgspec.Struct, omit_defaults=True):
    b: bytes = b""
    colour: Colour | None = None
    d: float = 0.5
    by_id: dict[int, int] = {}
    by_queue: dict[MessageQueue, int] = {}
    i: int = 7
    items: list[str] = []
    o: bool = False
    s: str | None = None
    table: dict[str, str] = {}
    anything: Any = None


QUEUE = MessageQueue("t", "b", 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{d:1,'i':'5',o:1}", Flat(d=1.0, i=5, o=True)),
        ('{"by_id":{0:1,"1":2,-3:4}}', Flat(by_id={0: 1, 1: 2, -3: 4})),
        ('{"by_id":{ 0 : "5" , 1 :6}}', Flat(by_id={0: 5, 1: 6})),
        ('{"by_queue":{{"topic":"t","brokerName":"b","queueId":1}:5}}', Flat(by_queue={QUEUE: 5})),
        (
            r'{"by_queue":{"{\"topic\":\"t\",\"brokerName\":\"b\",\"queueId\":1}":5}}',
            Flat(by_queue={QUEUE: 5}),
        ),
        ('{"i":""}', Flat()),
        ('{"i":null,"table":null,"items":null,"o":null,"d":null}', Flat()),
        ('{"i":1.5}', Flat(i=1)),
        ('{"i":true}', Flat(i=1)),
        ('{"i":+5}', Flat(i=5)),
        ('{"i":"05"}', Flat(i=5)),
        ('{"i":05}', Flat(i=5)),
        ('{"i":5L}', Flat(i=5)),
        ('{"d":5D}', Flat(d=5.0)),
        ('{"d":1.5F}', Flat(d=1.5)),
        ('{"d":5.}', Flat(d=5.0)),
        ('{"d":NaN}', Flat()),
        ('{"d":1e999}', Flat()),
        ('{"d":"1.5"}', Flat(d=1.5)),
        ('{"o":"true"}', Flat(o=True)),
        ('{"o":"Y"}', Flat(o=True)),
        ('{"o":""}', Flat()),
        ('{"o":0}', Flat(o=False)),
        ('{"s":5}', Flat(s="5")),
        ('{"s":true}', Flat(s="true")),
        ('{"s":undefined}', Flat()),
        ('{"colour":"GREEN"}', Flat(colour=Colour.GREEN)),
        ('{"colour":"green"}', Flat(colour=Colour.GREEN)),
        ('{"colour":1}', Flat(colour=Colour.GREEN)),
        ('{"colour":"MAUVE","i":5}', Flat(i=5)),
        ('{"colour":"","i":5}', Flat(i=5)),
        ('{,"i":1}', Flat(i=1)),
        ('{"i":1,}', Flat(i=1)),
        ('{"i":1,,"o":1}', Flat(i=1, o=True)),
        ('{"items":["a",,"b",]}', Flat(items=["a", "b"])),
        ('{"items":[,"a"]}', Flat(items=["a"])),
        ('{"items":[1,true,null,"x"]}', Flat(items=["1", "true", "x"])),
        ('{"table":{"a":5,"b":null,"c":true,d:\'x\'}}', Flat(table={"a": "5", "c": "true", "d": "x"})),
        ('{"table":""}', Flat()),
        ('{"b":"AQL/"}', Flat(b=b"\x01\x02\xff")),
        ('{"b":"AQ"}', Flat(b=b"\x01")),
        ('{"b":[1,-1]}', Flat(b=b"\x01\xff")),
        ('{"s":"a\nb\tc\x00"}', Flat(s="a\nb\tc\0")),
        (r'{"s":"\x41\v\0\7\F\'\/"}', Flat(s="A\v\0\x07\f'/")),
        (r"{'s':'a\'b\"c'}", Flat(s="a'b\"c")),
        (r'{"s":"\uD83D\uDE00","i":05}', Flat(s="😀", i=5)),
        (r'{"s":"\uD83D!"}', Flat(s="\ufffd!")),
        ('/*c*/{"i":1/**/, //x\n "o":1}//x', Flat(i=1, o=True)),
        ('\ufeff{"i":1}', Flat(i=1)),
        ('{"unknown":{{"a":[1]}:{2:3}},"i":1}', Flat(i=1)),
        ("{$x:1,_y:2,é:3,i:4}", Flat(i=4)),
        ('{"anything":{1:[{"a":2}]}}', Flat(anything={"1": [{"a": 2}]})),
        ('{"i":1,"i":2}', Flat(i=2)),
    ],
)
def test_what_fastjson_accepts_is_read(text: str, value: Flat) -> None:
    assert json_body.decode(text.encode(), Flat) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "[]",
        "5",
        '"x"',
        "{",
        "}",
        '{"i"',
        '{"i":',
        '{"i":1',
        '{"i":1}}',
        '{"i":1}x',
        '{"i":1}{}',
        '{"i" 1}',
        '{"i":1 "o":2}',
        '{"items":["a" "b"]}',
        '{"i":--5}',
        '{"i":-}',
        '{"i":0x10}',
        '{"i":"abc"}',
        '{"i":{}}',
        '{"o":"no"}',
        '{"colour":9}',
        '{"s":foo}',
        '{"s":"\\q"}',
        '{"s":"x}',
        '{"s":{"a":1}}',
        '{"items":{}}',
        '{"table":[]}',
        '{"by_id":{"x":5}}',
        '{"by_queue":{"x":5}}',
        '{"by_queue":{5:5}}',
        '{"by_queue":{{"topic":"t"}:5}}',
        '{"by_queue":{[1]:5}}',
        '{"i":' + "9" * 5000 + "}",
        '{i:"' + "9" * 5000 + '"}',
        "{i:" + "9" * 5000 + "}",
        "/*",
    ],
)
def test_what_fastjson_refuses_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="Flat: "):
        json_body.decode(text.encode(), Flat)


@pytest.mark.parametrize(
    "data",
    [b'{"s":"\xff"}', b"\x00", b'{"s":"\xed\xa0\x80"}', b"{'s':'\xc3'}"],
)
def test_broken_text_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        json_body.decode(data, Flat)


def test_numbers_beyond_their_type_are_refused() -> None:
    for queue_id in (2**31, -(2**31) - 1, 10**30):
        with pytest.raises(RemoteProtocolError):
            json_body.decode(b'{"topic":"t","brokerName":"b","queueId":%d}' % queue_id, MessageQueue)


class TestReferences:
    def test_in_a_route(self) -> None:
        route = json_body.decode(oddity("references_in_a_route"), TopicRouteData)
        first, second = route.broker_datas
        assert second.broker_addrs == first.broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
        assert second.broker_name == "broker-b"
        assert route.queue_datas[0] == route.queue_datas[1]

    def test_through_names_with_special_characters(self) -> None:
        table = json_body.decode(oddity("references_through_special_names"), ProducerTableInfo)
        assert table.data["zz"] == table.data['%RETRY%g.1-x_y"\\ z中']

    def test_through_numeric_keys(self) -> None:
        detail = json_body.decode(oddity("references_through_numeric_keys"), TopicQueueMappingDetail)
        assert detail.hosted_queues[1] == detail.hosted_queues[0]

    def test_what_cannot_be_found_is_left_out(self) -> None:
        info = json_body.decode(oddity("references_beside_object_keys"), ConsumerRunningInfo)
        assert list(info.mq_pop_table) == [MessageQueue("t", "b", 3)]
        assert info.mq_table == {}
        assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "1700000000000"

    @pytest.mark.parametrize(
        ("text", "table"),
        [
            ('{"twin":{"table":{"a":"x"}},"table":{"$ref":"$.twin.table"}}', {"a": "x"}),
            ('{"table":{"$ref":"$.twin.table"},"twin":{"table":{"a":"x"}}}', {"a": "x"}),
            ('{"twin":{"table":{"a":"x"}},"table":{"$ref":"$[\'twin\'].table"}}', {"a": "x"}),
            ('{"table":{"$ref":"$.nowhere"}}', {}),
            ('{"table":{"$ref":"$.i.x"},"i":5}', {}),
            ('{"table":{"$ref":"$.items[9]"},"items":[]}', {}),
            ('{"table":{"$ref":"$..twin"}}', {}),
            ('{"table":{"$ref":"$"}}', {}),
            ('{"table":{"$ref":".."}}', {}),
            ('{"table":{"$ref":"@"}}', {}),
            ('{"table":{"$ref":""}}', {}),
            ('{"table":{"$ref":"$.table"}}', {}),
            ('{"table":{"x":"$ref"}}', {"x": "$ref"}),
            ('{"table":{"$ref":"no path","b":"c"}}', {"$ref": "no path", "b": "c"}),
        ],
    )
    def test_every_form(self, text: str, table: dict[str, str]) -> None:
        assert json_body.decode(text.encode(), OnlyTable).table == table

    def test_a_document_that_is_a_reference_is_refused(self) -> None:
        with pytest.raises(RemoteProtocolError):
            json_body.decode(b'{"$ref":"$"}', Flat)

    def test_the_mark_alone_is_text(self) -> None:
        assert json_body.decode(b'"$ref"', str) == "$ref"

    def test_two_that_stand_for_each_other_are_left_out(self) -> None:
        text = b'{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}'
        assert json_body.decode(text, dict[str, Any])["a"] is None

    def test_a_cycle_is_refused(self) -> None:
        text = b'{"a":{"x":{"$ref":"$.b"}},"b":{"x":{"$ref":"$.a"}}}'
        with pytest.raises(RemoteProtocolError, match="cycle"):
            json_body.decode(text, dict[str, Any])

    def test_a_document_that_doubles_itself_is_refused(self) -> None:
        levels = ",".join(f'"l{n}":[{{"$ref":"$.l{n - 1}"}},{{"$ref":"$.l{n - 1}"}}]' for n in range(1, 60))
        with pytest.raises(RemoteProtocolError, match="references add more than"):
            json_body.decode(f'{{"l0":[1,2],{levels}}}'.encode(), dict[str, Any])

    def test_one_large_value_referred_to_often_is_refused(self) -> None:
        addresses = ",".join(f'{broker_id}:"a"' for broker_id in range(2000))
        brokers = ",".join(
            '{"brokerName":"b","brokerAddrs":{"$ref":"$.brokerDatas[0].brokerAddrs"}}' for _ in range(2000)
        )
        text = f'{{"brokerDatas":[{{"brokerName":"b","brokerAddrs":{{{addresses}}}}},{brokers}]}}'
        with pytest.raises(RemoteProtocolError, match="references add more than"):
            json_body.decode(text.encode(), TopicRouteData)

    def test_a_long_chain_is_refused(self) -> None:
        chain = ",".join(f'"c{n}":[{{"$ref":"$.c{n + 1}"}}]' for n in range(5000))
        with pytest.raises(RemoteProtocolError, match="deeper"):
            json_body.decode(f'{{{chain},"c5000":[]}}'.encode(), dict[str, Any])


class OnlyTable(msgspec.Struct):
    table: dict[str, str] = {}


@pytest.mark.parametrize("opening", ["[", '{"a":', "{{", "{a:", '{"unknown":[', "[,", '{"$ref":'])
def test_deep_nesting_is_refused(opening: str) -> None:
    for type_ in (Flat, dict[str, Any], list[Any]):
        with pytest.raises(RemoteProtocolError):
            json_body.decode(opening.encode() * 100_000, type_)


def test_nesting_that_bodies_have_is_read_by_the_parser_in_python() -> None:
    depth = fastjson_references.MAX_DEPTH - 1
    text = b"{'a':" + b"[" * depth + b"]" * depth + b"}"
    assert "a" in json_body.decode(text, dict[str, Any])
    with pytest.raises(RemoteProtocolError, match="deeper than"):
        json_body.decode(b"{'a':[" + b"[" * depth + b"]" * depth + b"]}", dict[str, Any])


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 500_000,
        b'{"s":"' + b"\\" * 1_000_001 + b'"}',
        b"{0:" + b"1" * 1_000_000,
        b"{" + b"-" * 1_000_000,
        b"{" + b"," * 1_000_000,
        b"{" + b"/*" * 500_000,
        b"{" + b"'" * 1_000_000,
        b'{0:"' + b'"' * 1_000_000,
        b'{"s":"' + b"\\ud800" * 100_000 + b"\\q",
        b'{"$ref":"$' + b".a" * 500_000 + b'"}',
        b"[" + b'{"$ref":"$[0]"},' * 50_000 + b"1]",
        b"{" + b"0:" * 500_000,
    ],
)
def test_long_nonsense_is_refused_in_linear_time(data: bytes) -> None:
    """A search that starts again at every character would not end within the time a test has."""
    with pytest.raises(RemoteProtocolError):
        json_body.decode(data, Flat)


def test_only_so_much_is_left_to_the_parser_in_python() -> None:
    long = "a" * 97
    items = ",".join([f"'{long}'"] * (fastjson_reader.MAX_ODD_BYTES // 100 - 1))
    assert json_body.decode(f'{{"items":[{items}]}}'.encode(), Flat).items[-1] == long
    with pytest.raises(RemoteProtocolError, match="bytes of odd JSON"):
        json_body.decode(f'{{"items":[{items},{items}]}}'.encode(), Flat)


def test_large_tables_keyed_by_numbers_or_objects_are_read() -> None:
    count = fastjson_reader.MAX_ODD_BYTES // 100
    table = {MessageQueue('a"topic\\', "a-broker-with-a-long-name", queue_id): 5 for queue_id in range(count)}
    written = json_body.encode(ResetOffsetBody(offset_table=table)).replace(b":5,", b" : 5 , ")
    large = written + b" " * fastjson_reader.MAX_ODD_BYTES
    assert json_body.decode(large, ResetOffsetBody).offset_table == table
    offsets = {f"topic{number}@group": dict.fromkeys(range(9), 2**62) for number in range(6000)}
    written = json_body.encode(ConsumerOffsetSerializeWrapper(offset_table=offsets))
    assert len(written) > fastjson_reader.MAX_ODD_BYTES
    assert json_body.decode(written, ConsumerOffsetSerializeWrapper).offset_table == offsets


def test_a_large_document_with_references_is_refused() -> None:
    zeros = b"0," * (fastjson_references.MAX_VALUES_BESIDE_REFERENCES + 1)
    with pytest.raises(RemoteProtocolError, match="references and over"):
        json_body.decode(b'{"a":[' + zeros + b'0],"b":{"$ref":"$.a"}}', dict[str, Any])


def test_keys_are_only_quoted_outside_of_strings_in_single_quotes() -> None:
    assert json_body.decode(b"{'s':'{1:2} {{\"a\":3}:4}',i:5}", Flat) == Flat(s='{1:2} {{"a":3}:4}', i=5)


def test_quotes_and_braces_within_strings_are_not_taken_for_keys() -> None:
    table = json_body.decode(oddity("numeric_keys"), ConsumerOffsetSerializeWrapper)
    assert table.offset_table == {'a,1:b@{2:c}"\\': {0: 5, 1: 6, -1: 7}}
    assert json_body.decode(oddity("numeric_keys_pretty"), ConsumerOffsetSerializeWrapper) == table


def test_an_object_as_key_may_hold_any_text() -> None:
    stats = json_body.decode(oddity("awkward_object_key"), ConsumeStats)
    queue = MessageQueue('t"{}:,', "b}", 0)
    assert stats.offset_table == {queue: OffsetWrapper(broker_offset=2**63 - 1, consumer_offset=-1)}
    assert json_body.encode(stats) == oddity("awkward_object_key")


def test_not_a_number_is_written_as_null_and_read_as_nothing() -> None:
    assert json_body.encode(ConsumeStats(consume_tps=float("nan"))) == oddity("not_a_number")
    assert json_body.decode(oddity("not_a_number"), ConsumeStats) == ConsumeStats()


def test_escapes_of_java_are_read_and_ours_say_the_same() -> None:
    table = json_body.decode(oddity("escapes"), KVTable)
    assert table.table == {"k\u2028\x7f/\x01é\b\v\f\n\r\t\"'\\<>中😀": '{0:1},["x",2:3]\\'}
    assert json_body.decode(json_body.encode(table), KVTable) == table
    assert "中😀".encode() in json_body.encode(table)


def test_the_strict_form_has_quoted_keys_and_ascii_only() -> None:
    route = json_body.decode(oddity("strict_route"), TopicRouteData)
    assert route.broker_datas[0].cluster == "集群"
    strict = json_body.encode_strict(route)
    assert strict == oddity("strict_route").replace(rb"\/", b"/")
    assert json_body.encode_strict(KVTable(table={"\x7f": "\u2028"})) == rb'{"table":{"\u007F":"\u2028"}}'


def test_the_strict_form_has_objects_as_keys_within_text() -> None:
    reset = ResetOffsetBody(offset_table={QUEUE: 5})
    assert json_body.encode_strict(reset) == oddity("strict_offsets")
    assert json_body.decode(oddity("strict_offsets"), ResetOffsetBody) == reset


def test_the_misspelt_flag_of_old_releases_is_read() -> None:
    text = b'{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":3,"writeQueueNums":4}'
    queues = QueueData(broker_name="b", perm=6, read_queue_nums=4, topic_sys_flag=3, write_queue_nums=4)
    assert json_body.decode(text, QueueData) == queues
    route = b'{"brokerDatas":[{"brokerAddrs":{0:"a"},"brokerName":"b"}],"queueDatas":[' + text + b"]}"
    assert json_body.decode(route, TopicRouteData).queue_datas == [queues]
    both = b'{"brokerName":"b","topicSynFlag":3,"topicSysFlag":1}'
    assert json_body.decode(both, QueueData).topic_sys_flag == 1


def test_an_unknown_language_does_not_hide_the_connection() -> None:
    text = b'{"data":{"g":[{"clientId":"c","language":"COBOL","lastUpdateTimestamp":5,"version":9}]}}'
    (info,) = json_body.decode(text, ProducerTableInfo).data["g"]
    assert (info.client_id, info.language, info.version) == ("c", None, 9)


def test_unknown_members_are_passed_over() -> None:
    assert json_body.decode(b'{"clientID":"c","somethingNew":{"x":[1]}}', HeartbeatData).client_id == "c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (-1e16, "-1.0E16"),
        (1e-5, "1.0E-5"),
        (123456.789, "123456.789"),
        (1e21, "1.0E21"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), "null"),
    ],
)
def test_fractions_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert json_body.encode([value]) == f"[{text}]".encode()
    assert json_body.encode(ConsumeStats(consume_tps=value)).startswith(f'{{"consumeTps":{text},'.encode())


def test_null_members_are_left_out_and_empty_collections_are_not() -> None:
    assert json_body.encode(TopicRouteData()) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    assert json_body.encode_strict(TopicRouteData()) == json_body.encode(TopicRouteData())


class Nulls(msgspec.Struct):
    a: str | None = None
    b: str | None = None
    c: list[str] = []
    d: str | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Nulls(), '{"c":[]}'),
        (Nulls(a="x"), '{"a":"x","c":[]}'),
        (Nulls(b="x", d="y"), '{"b":"x","c":[],"d":"y"}'),
        (Nulls(a=',"b":null', b='{"a":null}'), r'{"a":",\"b\":null","b":"{\"a\":null}","c":[]}'),
        (Nulls(a="x,", b=":null"), '{"a":"x,","b":":null","c":[]}'),
        (Nulls(a="{", d="null"), '{"a":"{","c":[],"d":"null"}'),
    ],
)
def test_only_nulls_are_left_out(value: Nulls, text: str) -> None:
    assert json_body.encode(value) == text.encode()
    assert json_body.encode_strict(value) == text.encode()


def test_plain_containers_are_written_by_what_is_in_them() -> None:
    value = {
        "list": [1, "é", None, True],
        "ids": {1: "a", 2: None},
        "queues": {QUEUE: 1.0},
        "route": BrokerData(broker_name="b", broker_addrs={0: "a"}),
        "nothing": None,
    }
    assert json_body.encode(value).decode() == (
        '{"list":[1,"é",null,true],"ids":{1:"a"},"queues":{{"brokerName":"b","queueId":1,"topic":"t"}:1.0},'
        '"route":{"brokerAddrs":{0:"a"},"brokerName":"b","enableActingMaster":false}}'
    )
    strict = json.loads(json_body.encode_strict(value))
    assert strict["ids"] == {"1": "a"}
    assert strict["route"]["brokerAddrs"] == {"0": "a"}
    assert strict["queues"] == {'{"brokerName":"b","queueId":1,"topic":"t"}': 1.0}


def test_a_topic_is_written_in_one_piece() -> None:
    assert json_body.encode(TopicConfig(topic_name="t")) == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"t","topicSysFlag":0,"writeQueueNums":16}'
    )


@pytest.mark.parametrize("value", ["\ud800", object(), {object(): 1}, [KVTable(table={"a": "\udfff"})]])
def test_what_json_cannot_say_is_our_own_fault(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        json_body.encode(value)
    with pytest.raises(LocalProtocolError):
        json_body.encode_strict(value)


def test_subscriptions_compare_as_sets() -> None:
    one = b'{"topic":"t","tagsSet":["a","b"],"codeSet":[97,98]}'
    other = b'{"topic":"t","tagsSet":["b","a"],"codeSet":[98,97]}'
    assert json_body.decode(one, SubscriptionData) == json_body.decode(other, SubscriptionData)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'["' + b"x" * 8 * 1024 * 1024 + b'"]', "JSON of 8388612 bytes; 8388608 are allowed"),
        (b"[" + b'"",' * 200_000 + b'""]', "JSON with more than 200000 values: 200000 are allowed"),
        (b"[" + b'{"$ref":"$"},' * 10_000 + b'""]', "odd JSON with more than 20000 values"),
        (b"[" + b"1," * 20_000 + b"1]", "odd JSON with more than 20000 values"),
        (b"[" + b"9" * 300_000 + b"]", "odd JSON of 300002 bytes; 262144 are allowed"),
        (b"[" + b"'x'," * 10_000 + b"'x']", "40005 bytes of odd JSON; 32768 are allowed"),
    ],
    ids=["bytes", "values", "references", "other types", "digits", "single quotes"],
)
def test_what_a_stranger_sends_may_take_so_much_work_and_no_more(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        json_body.decode(data, list[str], json_body.REQUEST)


def test_what_is_our_own_may_take_longer() -> None:
    assert len(json_body.decode(b"[" + b"1," * 20_000 + b"1]", list[str])) == 20_001
