"""Registrations of brokers: JSON and packed, from every release, and nothing believed that is not checked."""

import zlib
from struct import pack

import pytest
from tests.support.places import GOLDEN

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol import json_body, registration
from pyromq.protocol.body import DataVersion
from pyromq.protocol.codes import CURRENT_VERSION, V3_0_11, V5_0_0
from pyromq.protocol.registration import RegisterBrokerBody
from pyromq.protocol.requests.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingInfo,
)

MEBIBYTE = 1024 * 1024
V4_9_8 = 409

JAVA_PACKED = (GOLDEN / "bodies/oddities/registration.zlib").read_bytes()
"""What Apache's 5.3.3 packs for `SAMPLE`."""

SAMPLE = RegisterBrokerBody(
    filter_server_list=["10.0.0.9:1"],
    topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(counter=7, timestamp=1_700_000_000_000),
        topic_config_table={
            "TopicTest": TopicConfig(
                topic_name="TopicTest",
                read_queue_nums=8,
                write_queue_nums=4,
                attributes={"+message.type": "FIFO"},
            ),
            "主题": TopicConfig(topic_name="主题", perm=4),
        },
        topic_queue_mapping_info_map={
            "static": TopicQueueMappingInfo(
                topic="static", total_queues=2, bname="broker-a", epoch=3, curr_id_map={0: 1}
            )
        },
    ),
)


def decode(data: bytes, version: int = CURRENT_VERSION, *, compressed: bool = True) -> RegisterBrokerBody:
    return registration.decode(data, compressed=compressed, version=version, max_bytes=MEBIBYTE)


def sized(chunk: bytes) -> bytes:
    return pack(">i", len(chunk)) + chunk


def packed(*chunks: bytes) -> bytes:
    return zlib.compress(b"".join(chunks))


VERSION = sized(b'{"counter":1,"stateVersion":0,"timestamp":2}')
NO_SERVERS = sized(b"[]")


def test_what_java_packs_is_read() -> None:
    assert decode(JAVA_PACKED) == SAMPLE


def test_we_pack_what_java_packs() -> None:
    ours, java = (
        zlib.decompress(data) for data in (registration.encode_compressed(SAMPLE, 479), JAVA_PACKED)
    )
    assert sorted(ours) == sorted(java)
    assert len(ours) == len(java)


@pytest.mark.parametrize("version", [V5_0_0, CURRENT_VERSION])
def test_both_forms_keep_what_they_can_hold(version: int) -> None:
    assert decode(registration.encode_compressed(SAMPLE, version), version) == SAMPLE
    assert decode(registration.encode_plain(SAMPLE, version), version, compressed=False) == SAMPLE


def test_flags_and_order_are_lost_when_packed() -> None:
    body = RegisterBrokerBody()
    topics = body.topic_config_serialize_wrapper.topic_config_table
    topics["t"] = TopicConfig(
        topic_name="t", topic_sys_flag=3, order=True, topic_filter_type=TopicFilterType.MULTI_TAG
    )
    read = decode(registration.encode_compressed(body, 479)).topic_config_serialize_wrapper.topic_config_table
    assert read == {"t": TopicConfig(topic_name="t", topic_filter_type=TopicFilterType.MULTI_TAG)}


def test_a_4x_broker_packs_neither_attributes_nor_mappings() -> None:
    data = registration.encode_compressed(SAMPLE, V4_9_8)
    plain = zlib.decompress(data)
    assert b"FIFO" not in plain
    assert b"TopicTest 8 4 6 SINGLE_TAG\0" in plain
    read = decode(data, V4_9_8)
    assert read.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}
    assert decode(data, CURRENT_VERSION) == read


def test_mappings_of_a_4x_sender_are_not_looked_at() -> None:
    assert decode(packed(VERSION, pack(">i", 0), NO_SERVERS, b"\xff\xff"), V4_9_8) == decode(
        packed(VERSION, pack(">i", 0), NO_SERVERS), V4_9_8
    )


def test_a_packed_body_is_recognised_whatever_the_header_says() -> None:
    assert decode(JAVA_PACKED, compressed=False) == SAMPLE
    assert decode(registration.encode_plain(SAMPLE, 479), compressed=True) == SAMPLE


def test_releases_before_3_0_11_send_only_the_topics() -> None:
    data = registration.encode_plain(SAMPLE, V3_0_11 - 1)
    assert b"topicConfigSerializeWrapper" not in data
    read = decode(data, V3_0_11 - 1, compressed=False)
    expected = SAMPLE.topic_config_serialize_wrapper
    assert read.topic_config_serialize_wrapper.topic_config_table == expected.topic_config_table
    assert read.topic_config_serialize_wrapper.data_version == expected.data_version
    assert read.filter_server_list == []


def test_no_body_means_no_topics_and_the_first_version() -> None:
    assert decode(b"", compressed=False) == RegisterBrokerBody()
    assert RegisterBrokerBody().topic_config_serialize_wrapper.data_version == DataVersion()


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (b"t 1 2 6 SINGLE_TAG", TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=2)),
        (b"t 1 2 6 SINGLE_TAG ", TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=2)),
        (b"t 16 16 -7 SINGLE_TAG {}", TopicConfig(topic_name="t", perm=-7)),
        (
            b"t 16 16 6 MULTI_TAG {}",
            TopicConfig(topic_name="t", topic_filter_type=TopicFilterType.MULTI_TAG),
        ),
        (
            b'%RETRY%g 16 16 6 SINGLE_TAG {"a":"b c"}',
            TopicConfig(topic_name="%RETRY%g", attributes={"a": "b c"}),
        ),
        (b"t 16 16 6 SINGLE_TAG {broken", TopicConfig(topic_name="t")),
        (b"t 16 16 6 SINGLE_TAG null", TopicConfig(topic_name="t")),
    ],
)
def test_the_text_of_a_topic_is_read(text: bytes, config: TopicConfig) -> None:
    body = decode(packed(VERSION, pack(">i", 1), sized(text), NO_SERVERS, pack(">i", 0)))
    assert body.topic_config_serialize_wrapper.topic_config_table == {config.topic_name: config}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"t",
        b"t 1 2 6",
        b"t 1 2 6 NO_TAG",
        b"t 1 2 x SINGLE_TAG",
        b"t 1 2  SINGLE_TAG",
        b"t 1 2 6.5 SINGLE_TAG",
        b"t 1_0 2 6 SINGLE_TAG",
        b"t 2147483648 2 6 SINGLE_TAG",
        b"t 99999999999999999999 2 6 SINGLE_TAG",
        b"t  1 2 6 SINGLE_TAG",
        b"\xff 1 2 6 SINGLE_TAG",
    ],
)
def test_the_text_of_a_topic_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(packed(VERSION, pack(">i", 1), sized(text), NO_SERVERS, pack(">i", 0)))


def test_topics_do_not_share_their_attributes() -> None:
    tail = b' 16 16 6 SINGLE_TAG {"k":"v"}'
    body = decode(packed(VERSION, pack(">i", 2), sized(b"a" + tail), sized(b"b" + tail), NO_SERVERS))
    topics = body.topic_config_serialize_wrapper.topic_config_table
    topics["a"].attributes["k"] = "changed"
    assert topics["b"].attributes == {"k": "v"}


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"\x78\x9c",
        JAVA_PACKED[:-1],
        JAVA_PACKED[:40],
        b"not json",
        b"[]",
        packed(b""),
        packed(b"\0\0"),
        packed(pack(">i", -1)),
        packed(pack(">i", 2**31 - 1)),
        packed(sized(b"[]")),
        packed(VERSION),
        packed(VERSION, pack(">i", -1)),
        packed(VERSION, pack(">i", 2**31 - 1)),
        packed(VERSION, pack(">i", 1)),
        packed(VERSION, pack(">i", 1), pack(">i", 500), b"t 1 1 6 SINGLE_TAG"),
        packed(VERSION, pack(">i", 0)),
        packed(VERSION, pack(">i", 0), sized(b"{")),
        packed(VERSION, pack(">i", 0), sized(b"[1,")),
        packed(VERSION, pack(">i", 0), NO_SERVERS, b"\0"),
        packed(VERSION, pack(">i", 0), NO_SERVERS, pack(">i", 1)),
        packed(VERSION, pack(">i", 0), NO_SERVERS, pack(">i", -5)),
        packed(VERSION, pack(">i", 0), NO_SERVERS, pack(">i", 1), sized(b"[]")),
    ],
)
def test_a_broken_registration_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(data)


def test_filter_servers_may_be_null() -> None:
    assert decode(packed(VERSION, pack(">i", 0), sized(b"null"))).filter_server_list == []


def test_unpacking_stops_at_the_limit() -> None:
    bomb = zlib.compress(b"\0" * (4 * MEBIBYTE), 9)
    with pytest.raises(RemoteProtocolError):
        decode(bomb)


def test_a_name_with_a_space_cannot_be_packed() -> None:
    body = RegisterBrokerBody()
    body.topic_config_serialize_wrapper.topic_config_table["a b"] = TopicConfig(topic_name="a b")
    with pytest.raises(LocalProtocolError):
        registration.encode_compressed(body, CURRENT_VERSION)


@pytest.mark.parametrize(("data", "crc"), [(b"hello", 907060870), (b"a", 1756872259), (b"", 0)])
def test_the_checksum_has_no_sign(data: bytes, crc: int) -> None:
    assert registration.body_crc32(data) == crc


def test_plain_registrations_of_4x_and_5x_are_read() -> None:
    text = (
        '{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":5},'
        '"topicConfigTable":{"t":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        '"topicName":"t","topicSysFlag":0,"writeQueueNums":4}}}}'
    )
    body = decode(text.encode(), V4_9_8, compressed=False)
    topics = body.topic_config_serialize_wrapper
    assert topics.data_version == DataVersion(counter=1, timestamp=5)
    assert topics.topic_config_table["t"].attributes == {}
    assert json_body.decode(json_body.encode(body), RegisterBrokerBody) == body


def many_topics(count: int) -> RegisterBrokerBody:
    topics = {
        name: TopicConfig(topic_name=name, attributes={"}": '},"{'} if number % 97 == 0 else {})
        for number, name in ((number, f"topic-{number}") for number in range(count))
    }
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(topic_config_table=topics)
    )


def test_a_large_registration_in_json_is_read_in_pieces_wherever_they_are_cut() -> None:
    body = many_topics(3000)
    data = registration.encode_plain(body, CURRENT_VERSION)
    assert len(data) > 400_000
    assert registration.decode(data, compressed=False, version=CURRENT_VERSION, max_bytes=MEBIBYTE) == body


@pytest.mark.parametrize("packed", [False, True])
def test_a_registration_has_so_many_topics_and_no_more(packed: bool) -> None:
    encode = registration.encode_compressed if packed else registration.encode_plain

    def read(count: int) -> RegisterBrokerBody:
        data = encode(many_topics(count), CURRENT_VERSION)
        return registration.decode(
            data, compressed=packed, version=CURRENT_VERSION, max_bytes=MEBIBYTE, max_topics=10
        )

    assert len(read(10).topic_config_serialize_wrapper.topic_config_table) == 10
    with pytest.raises(RemoteProtocolError, match="registration with 11 topics; 10 are allowed"):
        read(11)
