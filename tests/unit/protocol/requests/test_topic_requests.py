"""The request that creates a topic has the topic's settings; nothing gets lost on the way."""

import pytest

from pyromq.protocol.requests.topics import (
    CreateOrUpdateTopic,
    CreateStaticTopic,
    TopicConfig,
    TopicFilterType,
    TopicQueueMappingDetail,
)

CONFIG = TopicConfig(
    topic_name="Orders",
    read_queue_nums=3,
    write_queue_nums=2,
    perm=4,
    topic_filter_type=TopicFilterType.MULTI_TAG,
    topic_sys_flag=8,
    order=True,
)


def test_a_request_brings_all_settings_to_the_broker() -> None:
    request = CreateOrUpdateTopic.of(CONFIG, attributes="+message.type=FIFO")
    assert request.config() == CONFIG
    assert request.attributes == "+message.type=FIFO"


def test_so_does_the_one_of_a_static_topic() -> None:
    detail = TopicQueueMappingDetail(topic="Orders", total_queues=2)
    request = CreateStaticTopic.of(CONFIG, force=True, body=detail)
    assert isinstance(request, CreateStaticTopic)
    assert (request.config(), request.force, request.body) == (CONFIG, True, detail)


def test_an_unknown_type_of_filter_is_refused() -> None:
    request = CreateOrUpdateTopic.of(CONFIG)
    request.topic_filter_type = "ALL_TAGS"
    with pytest.raises(ValueError, match="ALL_TAGS"):
        request.config()
