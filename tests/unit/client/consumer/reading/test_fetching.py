"""One pull: what a broker is asked, and what its answer means."""

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import ORDERS, QUEUE, RETRY_QUEUE, tagged

from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import MessageQueue
from pyromq.errors import ConnectFailed, NoRoute, Refused
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage, PullMessageAnswer


def pull_answer(*records: StoredMessage, code: int = 0, broker_id: int = 0) -> PullMessageAnswer:
    return PullMessageAnswer(
        code=code,
        suggest_which_broker_id=broker_id,
        next_begin_offset=9,
        min_offset=1,
        max_offset=10,
        body=b"".join(map(encode_record, records)),
    )


EVERYTHING = Subscription.of("Orders", "*", 5)


async def test_a_pull_says_what_is_done_and_waits_at_the_broker(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(tagged(8, None))
    pulled = await Fetching(network, "billing").pull(QUEUE, EVERYTHING, 8, commit_offset=6)
    ((address, request),) = network.calls
    assert isinstance(request, PullMessage)
    assert address == "a:1"
    assert (request.sys_flag, request.commit_offset, request.sub_version) == (3, 6, 5)
    assert request.subscription is None
    assert (pulled.next_offset, len(pulled.messages), pulled.is_moved) == (9, 1, False)


async def test_a_replica_is_asked_where_the_broker_wishes_and_is_told_no_offsets(
    network: FakeNetwork,
) -> None:
    network.answers[PullMessage] = pull_answer(broker_id=1, code=ResponseCode.PULL_NOT_FOUND)
    fetching = Fetching(network, "billing")
    pulled = await fetching.pull(QUEUE, EVERYTHING, 8, commit_offset=6)
    await fetching.pull(QUEUE, EVERYTHING, 8, commit_offset=6, broker_id=pulled.next_broker_id)
    address, request = network.calls[1]
    assert isinstance(request, PullMessage)
    assert (address, request.sys_flag) == ("a:2", 2)


@pytest.mark.parametrize(
    ("code", "is_moved"),
    [
        (ResponseCode.PULL_NOT_FOUND, False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, False),
        (ResponseCode.PULL_OFFSET_MOVED, True),
    ],
)
async def test_answers_without_messages_say_where_to_go_on(
    network: FakeNetwork, code: int, is_moved: bool
) -> None:
    network.answers[PullMessage] = pull_answer(code=code)
    pulled = await Fetching(network, "billing").pull(QUEUE, EVERYTHING, 8)
    assert (pulled.messages, pulled.next_offset, pulled.is_moved) == ([], 9, is_moved)


async def test_messages_with_other_tags_are_sorted_out(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(tagged(1, "Aa"), tagged(2, "BB"), tagged(3, None))
    pulled = await Fetching(network, "billing").pull(QUEUE, Subscription.of("Orders", "Aa", 0), 1)
    assert [message.queue_offset for message in pulled.messages] == [1]


async def test_retried_messages_come_under_their_first_topic(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(
        tagged(1, None, RETRY_QUEUE.topic, RETRY_TOPIC="shop%Orders"), tagged(2, None, RETRY_QUEUE.topic)
    )
    fetching = Fetching(network, "billing", namespace="shop")
    pulled = await fetching.pull(RETRY_QUEUE, Subscription.of(RETRY_QUEUE.topic, "*", 0), 1)
    assert [message.topic for message in pulled.messages] == ["Orders", "%RETRY%billing"]


async def test_a_lite_pull_brings_its_subscription_and_falls_back_on_old_brokers(
    network: FakeNetwork,
) -> None:
    network.answers[LitePullMessage] = Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    network.answers[PullMessage] = pull_answer()
    fetching = Fetching(network, "reports", is_lite=True)
    for _ in range(2):
        await fetching.pull(QUEUE, EVERYTHING, 8)
    requests = [request for _, request in network.calls]
    assert [type(request) for request in requests] == [LitePullMessage, PullMessage, PullMessage]
    assert isinstance(requests[2], PullMessage)
    assert (requests[2].sys_flag, requests[2].subscription, requests[2].sub_version) == (22, "*", 0)


async def test_a_broker_that_nobody_knows_is_an_error_that_passes(network: FakeNetwork) -> None:
    unknown = MessageQueue("Orders", "broker-z", 0)
    with pytest.raises((NoRoute, ConnectFailed)):
        await Fetching(network, "billing").pull(unknown, EVERYTHING, 0)


@pytest.mark.parametrize("is_lite", [False, True])
@pytest.mark.parametrize("numbers", [(0, 2, 0), (2**40, 23, 7)], ids=str)
def test_a_filled_pull_is_what_the_general_path_writes(is_lite: bool, numbers: tuple[int, int, int]) -> None:
    reading = Fetching(FakeNetwork(ORDERS), "billing", is_lite=is_lite)
    subscription = Subscription.of("Orders", "a || b", 77)
    kind = LitePullMessage if is_lite else PullMessage
    for _ in range(2):  # made, then known
        head = reading._asking(kind, QUEUE, subscription).form.head(numbers, 5, 0, 10_000)
        assert head == encode_frame(encode_request(reading._request(kind, QUEUE, subscription, *numbers), 5))


def test_a_new_subscription_has_a_new_form() -> None:
    reading = Fetching(FakeNetwork(ORDERS), "billing")
    subscriptions = (Subscription.of("Orders", "*", version) for version in (1, 2))
    first, second = (reading._asking(PullMessage, QUEUE, each).form for each in subscriptions)
    assert first.head((0, 0, 0), 5, 0, 10_000) != second.head((0, 0, 0), 5, 0, 10_000)
