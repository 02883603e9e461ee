"""The small values within bodies: queues, versions, languages, acknowledgements."""

import pytest

from pyromq.protocol import json_body
from pyromq.protocol.body import DataVersion, MessageQueue
from pyromq.protocol.codes import Language
from pyromq.protocol.pop_records import BatchAckMsg
from pyromq.protocol.requests.groups import CustomizedRetryPolicy
from pyromq.protocol.requests.membership import ClientLanguage
from pyromq.protocol.requests.popping import BatchAck, BatchAckMessageRequestBody
from pyromq.protocol.requests.topics import TopicConfigAndQueueMapping


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    queues = [MessageQueue(*name) for name in [("b", "a", 0), ("a", "b", 1), ("a", "b", 0), ("a", "a", 9)]]
    assert [str(queue) for queue in sorted(queues)] == ["a@a:9", "a@b:0", "a@b:1", "b@a:0"]


def test_equal_queues_are_one_key() -> None:
    assert len({MessageQueue("t", "b", 1), MessageQueue("t", "b", 1), MessageQueue("t", "b", 2)}) == 2
    assert repr(MessageQueue("t", "b", 1)) == "MessageQueue(topic='t', broker_name='b', queue_id=1)"


@pytest.mark.parametrize("member", ["counter", "state_version", "timestamp"])
def test_versions_differ_when_any_number_differs(member: str) -> None:
    version = DataVersion(counter=1, state_version=2, timestamp=3)
    assert version == DataVersion(counter=1, state_version=2, timestamp=3)
    assert version != DataVersion(**{"counter": 1, "state_version": 2, "timestamp": 3, member: 9})


def test_the_next_version_counts_on_and_takes_the_time() -> None:
    version = DataVersion(counter=4, state_version=7, timestamp=100)
    assert version.next(200) == DataVersion(counter=5, state_version=0, timestamp=200)
    assert version.next(200, state_version=8) == DataVersion(counter=5, state_version=8, timestamp=200)


def test_languages_have_the_numbers_of_frames() -> None:
    assert [language.name for language in ClientLanguage] == [language.name for language in Language]
    assert [language.value for language in Language] == list(range(len(ClientLanguage)))


def test_the_default_delays_are_those_of_the_delay_levels() -> None:
    delays = CustomizedRetryPolicy().next
    assert (len(delays), delays[0], delays[4], delays[-1]) == (18, 1_000, 60_000, 7_200_000)
    assert CustomizedRetryPolicy().next is not delays


def test_an_acknowledgement_is_read_by_short_and_by_long_names() -> None:
    ack = BatchAck(bit_set=b"\x01\x02", consumer_group="g", topic="t", queue_id=2, start_offset=5, retry="1")
    short = b'{"acks":[{"b":"AQI=","c":"g","q":2,"r":"1","so":5,"t":"t"}]}'
    long = (
        b'{"acks":[{"bitSet":"AQI=","consumerGroup":"g","queueId":2,'
        b'"retry":"1","startOffset":5,"topic":"t"}]}'
    )
    assert json_body.decode(short, BatchAckMessageRequestBody).acks == [ack]
    assert json_body.decode(long, BatchAckMessageRequestBody).acks == [ack]


def test_what_extends_another_body_is_written_in_order_too() -> None:
    assert json_body.encode(BatchAckMsg(ack_offset_list=[5])) == b'{"ao":0,"aol":[5],"pt":0,"q":0,"so":0}'
    assert json_body.encode(TopicConfigAndQueueMapping(topic_name="t")).startswith(
        b'{"attributes":{},"order"'
    )
