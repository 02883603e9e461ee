"""What is wrong with a group, from the reports of its members."""

from pyromq.admin.connections import ConnectedMember
from pyromq.admin.diagnosis import GroupFault, judged
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.inspection import ConsumerRunningInfo, ProcessQueueInfo
from pyromq.protocol.requests.membership import MessageModel, SubscriptionData

NOW_MS = 1_700_000_000_000
QUEUES = [MessageQueue("t", "a", number) for number in range(2)]


def member(
    name: str, *queues: MessageQueue, expression: str = "*", held: int = 0, last_ms: int = NOW_MS
) -> ConnectedMember:
    running = ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        subscription_set=[SubscriptionData(topic="t", sub_string=expression)],
        mq_table={
            queue: ProcessQueueInfo(cached_msg_count=held, last_consume_timestamp=last_ms) for queue in queues
        },
    )
    return ConnectedMember(name, 400, running)


def faults(*members: ConnectedMember, model: MessageModel = MessageModel.CLUSTERING) -> list[GroupFault]:
    return [each.fault for each in judged(list(members), model, set(QUEUES), NOW_MS).findings]


def test_members_that_share_all_queues_are_sound() -> None:
    assert faults(member("x", QUEUES[0]), member("y", QUEUES[1])) == []


def test_members_that_subscribe_differently_disagree() -> None:
    assert faults(member("x", QUEUES[0]), member("y", QUEUES[1], expression="A")) == [GroupFault.DISAGREE]


def test_a_queue_that_nobody_reads_has_no_owner() -> None:
    found = judged([member("x", QUEUES[0])], MessageModel.CLUSTERING, set(QUEUES), NOW_MS)
    assert [(each.fault, each.queue) for each in found.findings] == [(GroupFault.NO_OWNER, QUEUES[1])]
    assert found.owners == {"t a:0": ["x"]}


def test_a_queue_with_two_readers_has_two_owners() -> None:
    assert faults(member("x", *QUEUES), member("y", QUEUES[1])) == [GroupFault.TWO_OWNERS]


def test_broadcasting_members_all_read_all_queues() -> None:
    assert faults(member("x", *QUEUES), member("y", *QUEUES), model=MessageModel.BROADCASTING) == []


def test_the_queues_of_a_silent_member_are_not_said_to_have_no_owner() -> None:
    assert faults(member("x", QUEUES[0]), ConnectedMember("y", 400, None)) == [GroupFault.SILENT]


def test_held_messages_that_nobody_consumes_are_no_progress() -> None:
    assert faults(member("x", *QUEUES, held=5, last_ms=NOW_MS - 120_000)) == [GroupFault.NOT_PROGRESSING] * 2
