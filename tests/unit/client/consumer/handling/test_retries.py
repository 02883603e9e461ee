"""Messages that go back to their broker."""

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE, tagged

from pyromq.client.consumer.handling.retries import HandlerRetries
from pyromq.client.values import ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout, Refused
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import decode_properties
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageBack, SendMessageV2


def failed_message() -> ReceivedMessage:
    stored = tagged(1, "a", UNIQ_KEY="the id", RECONSUME_TIME="x", TRAN_MSG="true")
    stored.log_offset, stored.reconsume_times, stored.flag = 77, 2, 5
    return ReceivedMessage(stored, QUEUE)


async def test_a_message_is_given_back_by_its_place_in_the_log(network: FakeNetwork) -> None:
    network.answers[SendMessageBack] = Answer()
    await HandlerRetries(network, "billing", ManualClock(), max_times=4).give_back(failed_message(), 3)
    ((_, request),) = network.calls
    assert isinstance(request, SendMessageBack)
    assert (request.offset, request.delay_level, request.max_reconsume_times) == (77, 3, 4)
    assert (request.origin_topic, request.origin_msg_id, request.group) == ("Orders", "the id", "billing")


async def test_a_copy_that_the_next_master_may_not_have_is_sent_once_more(network: FakeNetwork) -> None:
    unsafe = SendMessageAnswer(code=ResponseCode.FLUSH_SLAVE_TIMEOUT, msg_id="1", queue_id=0, queue_offset=0)
    network.answers[SendMessageBack] = CallTimeout("no answer")
    network.answers[SendMessageV2] = unsafe
    with pytest.raises(Refused, match="the next master may not have it"):
        await HandlerRetries(network, "billing", ManualClock(), max_times=4).give_back(failed_message(), 0)


@pytest.mark.parametrize(("delay_level", "limit"), [(0, 4), (-1, -1)])
async def test_what_cannot_be_given_back_is_sent_again(
    network: FakeNetwork, delay_level: int, limit: int
) -> None:
    network.answers[SendMessageBack] = CallTimeout("no answer")
    network.answers[SendMessageV2] = SendMessageAnswer(msg_id="1", queue_id=0, queue_offset=0)
    await HandlerRetries(network, "billing", ManualClock(), max_times=4).give_back(
        failed_message(), delay_level
    )
    _, request = network.calls[1]
    assert isinstance(request, SendMessageV2)
    assert (request.topic, request.body, request.flag) == ("%RETRY%billing", b"x", 5)
    assert (request.reconsume_times, request.max_reconsume_times) == (3, limit)
    assert decode_properties(request.properties or "") == {
        "TAGS": "a",
        "UNIQ_KEY": "the id",
        "ORIGIN_MESSAGE_ID": "the id",
        "RETRY_TOPIC": "Orders",
        "DELAY": "5",
    }


async def test_a_message_that_nobody_takes_is_an_error(network: FakeNetwork) -> None:
    network.answers[SendMessageBack] = network.answers[SendMessageV2] = CallTimeout("no answer")
    with pytest.raises(CallTimeout):
        await HandlerRetries(network, "billing", ManualClock(), max_times=None).give_back(failed_message(), 0)
