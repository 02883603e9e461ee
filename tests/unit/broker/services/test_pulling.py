"""Pulling: who may, what is found, what waits and what wakes it."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.broker_parts import at_once, broker_parts, caller_on, refusal
from tests.support.pulls import GROUP, TOPIC, Pulls, bodies, request

from pyromq.broker.flow.read_grants import ReadGrant
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.compression import Compression, compress
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.pulling import LitePullMessage
from pyromq.store.json_table import JsonTable
from pyromq.store.queues import mending
from pyromq.store.results import QueueAdvance


@pytest.fixture
async def pulls(tmp_path: Path) -> AsyncIterator[Pulls]:
    with broker_parts(tmp_path) as parts:
        yield Pulls(parts)


async def test_a_pull_finds_messages_and_says_where_to_go_on(pulls: Pulls) -> None:
    pulls.subscribe()
    for number in range(5):
        pulls.put(f"m{number}")
    answer = at_once(pulls.pull(1, max_msg_nums=3))
    assert bodies(answer) == ["m1", "m2", "m3"]
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "FOUND"
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "4",
        "minOffset": "0",
        "maxOffset": "5",
    }
    assert pulls.statistics.gets_of(GROUP, TOPIC, 0).messages == 3
    assert (pulls.statistics.pulls_found, pulls.statistics.pulls_missed) == (1, 0)


@pytest.mark.parametrize(
    ("messages", "offset", "code", "next_offset"),
    [
        (0, 0, ResponseCode.PULL_NOT_FOUND, 0),
        (0, 7, ResponseCode.PULL_OFFSET_MOVED, 0),
        (3, 3, ResponseCode.PULL_NOT_FOUND, 3),
        (3, 9, ResponseCode.PULL_OFFSET_MOVED, 3),
        (3, -1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
    ids=["an empty queue", "an empty queue thought full", "the end", "beyond the end", "before the start"],
)
async def test_a_pull_that_does_not_wait_at(
    pulls: Pulls, messages: int, offset: int, code: int, next_offset: int
) -> None:
    pulls.subscribe()
    for number in range(messages):
        pulls.put(f"m{number}")
    answer = at_once(pulls.pull(offset))
    assert (answer.code, answer.ext["nextBeginOffset"], answer.body) == (code, str(next_offset), b"")


def broker_unreadable(pulls: Pulls) -> None:
    pulls.parts.change(brokerPermission="2")


def group_unknown(pulls: Pulls) -> None:
    pulls.parts.change(autoCreateSubscriptionGroup="false")


def group_may_not_consume(pulls: Pulls) -> None:
    pulls.parts.groups.update(SubscriptionGroupConfig(group_name=GROUP, consume_enable=False))


def topic_unknown(pulls: Pulls) -> None:
    pulls.parts.topics.delete(TOPIC)


def topic_unreadable(pulls: Pulls) -> None:
    pulls.parts.add_topic(TOPIC, perm=2)


def nobody_subscribed(pulls: Pulls) -> None:
    pulls.parts.consumers.lost(pulls.connection)


def broadcasting_forbidden(pulls: Pulls) -> None:
    pulls.parts.groups.update(SubscriptionGroupConfig(group_name=GROUP, consume_broadcast_enable=False))
    pulls.subscribe(model="BROADCASTING")


def topic_forbidden(pulls: Pulls) -> None:
    pulls.parts.groups.let_read(GROUP, TOPIC, allowed=False)


def older_subscription(pulls: Pulls) -> None:
    pulls.subscribe(version=0)


def nothing(pulls: Pulls) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "changes", "code"),
    [
        (group_unknown, {}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (topic_unknown, {}, ResponseCode.TOPIC_NOT_EXIST),
        (nothing, {"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        (nothing, {"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        (nobody_subscribed, {}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (nothing, {"sub_version": 2}, ResponseCode.SUBSCRIPTION_NOT_LATEST),
        (
            nothing,
            {"sys_flag": 4, "subscription": "a >", "expression_type": "SQL92"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ),
        (
            nothing,
            {"sys_flag": 4, "subscription": "a > 1", "expression_type": "SQL92"},
            ResponseCode.SYSTEM_ERROR,
        ),
    ],
)
async def test_a_pull_is_refused_because(
    pulls: Pulls, spoil: Callable[[Pulls], None], changes: dict[str, Any], code: int
) -> None:
    pulls.subscribe()
    spoil(pulls)
    assert refusal(lambda: pulls.pull(**changes)).code == code


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (broker_unreadable, "1"),
        (group_may_not_consume, "2"),
        (topic_unreadable, "3"),
        (broadcasting_forbidden, "4"),
        (topic_forbidden, "5"),
    ],
)
async def test_a_pull_is_not_permitted_because(
    pulls: Pulls, spoil: Callable[[Pulls], None], kind: str
) -> None:
    pulls.subscribe()
    spoil(pulls)
    answer = at_once(pulls.pull())
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": kind})


async def test_a_pull_waits_until_a_message_arrives(pulls: Pulls) -> None:
    pulls.subscribe()
    waiting = pulls.pull(sys_flag=2)
    assert isinstance(waiting, asyncio.Future)
    assert pulls.held_pulls.held_count == 1
    pulls.put("elsewhere", queue_id=1)
    assert not waiting.done()
    pulls.put("here")
    assert bodies(waiting.result()) == ["here"]
    assert pulls.held_pulls.held_count == 0


async def test_a_waiting_pull_is_not_woken_by_what_it_does_not_want(pulls: Pulls) -> None:
    pulls.subscribe("Paid")
    waiting = pulls.pull(sys_flag=2)
    assert isinstance(waiting, asyncio.Future)
    pulls.put("created", TAGS="Created")
    assert not waiting.done()
    pulls.put("paid", TAGS="Paid")
    answer = waiting.result()
    assert bodies(answer) == ["paid"]
    assert answer.ext["nextBeginOffset"] == "2"


async def test_a_pull_whose_time_is_over_is_told_so(pulls: Pulls) -> None:
    pulls.subscribe()
    waiting = pulls.pull(sys_flag=2, suspend_timeout_millis=1)
    assert isinstance(waiting, asyncio.Future)
    answer = await waiting
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_what_was_looked_at_while_waiting_is_skipped_at_the_end(pulls: Pulls) -> None:
    pulls.subscribe("Paid")
    waiting = pulls.pull(sys_flag=2, suspend_timeout_millis=60_000)
    assert isinstance(waiting, asyncio.Future)
    pulls.put("created", TAGS="Created")
    pulls.held_pulls.release(TOPIC)
    answer = waiting.result()
    assert answer.ext["nextBeginOffset"] == "1"
    assert answer.body == b""


async def test_a_pull_of_a_closed_connection_is_forgotten(pulls: Pulls) -> None:
    pulls.subscribe()
    waiting = pulls.pull(sys_flag=2)
    assert isinstance(waiting, asyncio.Future)
    pulls.connection.close()
    pulls.put("m")
    assert waiting.cancelled()
    assert pulls.held_pulls.held_count == 0
    assert (pulls.statistics.pulls_found, pulls.statistics.pulls_missed) == (0, 1)


async def test_without_long_polling_a_pull_waits_a_moment_only(pulls: Pulls) -> None:
    pulls.subscribe()
    pulls.parts.change(longPollingEnable="false", shortPollingTimeMills="1")
    waiting = pulls.pull(sys_flag=2, suspend_timeout_millis=3_600_000)
    assert isinstance(waiting, asyncio.Future)
    assert (await waiting).code == ResponseCode.PULL_NOT_FOUND


async def test_ten_thousand_waiting_pulls_are_woken_by_their_own_queue_alone(pulls: Pulls) -> None:
    pulls.parts.add_topic(TOPIC, queues=10_000)
    pulls.subscribe()
    waiting = [pulls.pull(sys_flag=2, queue_id=queue_id) for queue_id in range(10_000)]
    pulls.put("m", queue_id=4321)
    done = [number for number, each in enumerate(waiting) if isinstance(each, asyncio.Future) and each.done()]
    assert done == [4321]
    assert pulls.held_pulls.held_count == 9_999
    pulls.held_pulls.release_all()
    assert pulls.held_pulls.held_count == 0


async def test_a_pull_commits_the_offset_it_carries(pulls: Pulls) -> None:
    pulls.subscribe()
    pulls.pull(sys_flag=1, commit_offset=17)
    assert pulls.parts.offsets.query(GROUP, TOPIC, 0) == 17
    pulls.pull(sys_flag=0, commit_offset=99)
    assert pulls.parts.offsets.query(GROUP, TOPIC, 0) == 17


async def test_a_reset_on_the_server_moves_pulls_until_the_consumer_has_seen_it(pulls: Pulls) -> None:
    pulls.subscribe()
    for number in range(5):
        pulls.put(f"m{number}")
    pulls.parts.offsets.assign_reset(GROUP, TOPIC, 0, 2)
    for _ in range(2):  # the first answer may be lost
        moved = at_once(pulls.pull(5, sys_flag=1, commit_offset=5))
        assert (moved.code, moved.ext["nextBeginOffset"], moved.remark) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "2",
            "OFFSET_RESET",
        )
    assert pulls.parts.offsets.query(GROUP, TOPIC, 0) == 2
    assert bodies(at_once(pulls.pull(2))) == ["m2", "m3", "m4"]
    assert bodies(at_once(pulls.pull(4, sys_flag=1, commit_offset=4))) == ["m4"]
    assert pulls.parts.offsets.query(GROUP, TOPIC, 0) == 4


async def test_tags_in_the_request_need_no_heartbeat(pulls: Pulls) -> None:
    for tag in ("A", "B", "A"):
        pulls.put(f"tag {tag}", TAGS=tag)
    answer = at_once(pulls.pull(sys_flag=4, subscription="A"))
    assert bodies(answer) == ["tag A", "tag A"]
    assert answer.ext["nextBeginOffset"] == "3"


async def test_nothing_wanted_among_many_says_to_go_on_at_once(pulls: Pulls) -> None:
    pulls.put("a", TAGS="A")
    answer = at_once(pulls.pull(sys_flag=6, subscription="B"))
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")


async def test_an_expression_filters_by_properties(pulls: Pulls) -> None:
    pulls.parts.change(enablePropertyFilter="true")
    pulls.subscribe("amount > 10 AND region = 'eu'", kind="SQL92")
    for amount, region in [("5", "eu"), ("50", "eu"), ("50", "us"), ("11", "eu")]:
        pulls.put(f"{amount} {region}", amount=amount, region=region)
    assert bodies(at_once(pulls.pull())) == ["50 eu", "11 eu"]


async def test_an_expression_filters_by_fields_of_the_body(pulls: Pulls) -> None:
    pulls.parts.change(enablePropertyFilter="true", filterSupportBody="true")
    pulls.subscribe("body.amount > 10", kind="SQL92")
    for body in ('{"amount": 5}', "no JSON", '{"amount": 50}', '{"amount": "50"}', "{}"):
        pulls.put(body)
    assert bodies(at_once(pulls.pull())) == ['{"amount": 50}']
    assert pulls.statistics.bodies_unread == 0


@pytest.mark.parametrize("kind", list(Compression))
async def test_an_expression_reads_compressed_bodies(pulls: Pulls, kind: Compression) -> None:
    pulls.parts.change(enablePropertyFilter="true", filterSupportBody="true")
    pulls.subscribe("body.amount > 10", kind="SQL92")
    for amount in (5, 50):
        pulls.put_raw(compress(b'{"amount": %d}' % amount, kind), sys_flag=kind.sys_flag)
    answer = at_once(pulls.pull())
    assert [message.queue_offset for message in decode_records(answer.body)] == [1]


async def test_the_fields_of_a_large_or_broken_body_are_unknown_and_that_is_counted(
    pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    pulls.parts.change(enablePropertyFilter="true", filterSupportBody="true", filterMaxBodySize="1000")
    pulls.subscribe("body.amount > 10", kind="SQL92")
    large = b'{"amount": 50, "rest": "%s"}' % (b"x" * 1000)
    pulls.put_raw(large)
    pulls.put_raw(compress(large, Compression.ZSTD), sys_flag=Compression.ZSTD.sys_flag)
    pulls.put_raw(b"broken", sys_flag=Compression.ZLIB.sys_flag)
    pulls.put('{"amount": 51}')
    with caplog.at_level("WARNING"):
        assert bodies(at_once(pulls.pull())) == ['{"amount": 51}']
    assert pulls.statistics.bodies_unread == 3
    assert [record.getMessage().count("filterMaxBodySize=1000") for record in caplog.records] == [1]


async def test_fields_of_bodies_are_refused_unless_the_broker_serves_them(pulls: Pulls) -> None:
    pulls.parts.change(enablePropertyFilter="true")
    pulls.subscribe("body.amount > 10", kind="SQL92")
    problem = refusal(pulls.pull)
    assert problem.code == ResponseCode.SYSTEM_ERROR
    assert "filterSupportBody is off" in str(problem)
    own = refusal(lambda: pulls.pull(sys_flag=4, subscription="body.amount > 10", expression_type="SQL92"))
    assert "filterSupportBody is off" in str(own)


async def test_an_expression_that_was_never_compiled_is_missed(pulls: Pulls) -> None:
    pulls.parts.change(enablePropertyFilter="true")
    pulls.subscribe("amount >", kind="SQL92")
    assert refusal(pulls.pull).code == ResponseCode.FILTER_DATA_NOT_EXIST


async def test_lite_pulls_can_be_switched_off(pulls: Pulls) -> None:
    pulls.put("m")
    lite = LitePullMessage(**msgspec.structs.asdict(request(sys_flag=20, subscription="*")))
    assert bodies(at_once(pulls.service.lite_pull(lite, caller_on(pulls.connection)))) == ["m"]
    pulls.parts.change(litePullMessageEnable="false")
    refused = at_once(pulls.service.lite_pull(lite, caller_on(pulls.connection)))
    assert refused.code == ResponseCode.NO_PERMISSION


async def test_consumers_that_never_said_hello_can_be_refused(pulls: Pulls) -> None:
    pulls.parts.change(rejectPullConsumerEnable="true")
    assert (
        refusal(lambda: pulls.pull(sys_flag=4, subscription="*")).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    )


async def test_far_behind_consumers_are_sent_to_a_replica_only_if_replicas_may_be_read(pulls: Pulls) -> None:
    pulls.subscribe()
    pulls.put("m")
    pulls.parts.change(slaveReadEnable="true")
    pulls.parts.groups.update(SubscriptionGroupConfig(group_name=GROUP, broker_id=3))
    assert at_once(pulls.pull()).ext["suggestWhichBrokerId"] == "3"


async def test_a_message_nobody_waits_for_answers_no_pull(pulls: Pulls) -> None:
    pulls.held_pulls.advanced(QueueAdvance("Nothing", 0, 1))
    assert pulls.held_pulls.held_count == 0


# What a pull that found something leaves for the next one


def grant(pulls: Pulls, subscription: str | None = None) -> ReadGrant | None:
    return pulls.read_grants.find(11, GROUP, TOPIC, subscription, "TAG" if subscription else None)


async def test_a_pull_that_finds_something_leaves_a_read_grant(pulls: Pulls) -> None:
    pulls.subscribe("a || b", version=7)
    pulls.put("m", TAGS="a")
    assert grant(pulls) is None
    at_once(pulls.pull())
    opened = grant(pulls)
    assert opened is not None
    assert opened.tag_codes == {tag_code("a"), tag_code("b")}
    assert opened.newest_version == 7
    assert opened.queues == 4
    assert grant(pulls, "a") is None


async def test_a_subscription_that_comes_with_the_pull_has_a_read_grant_of_its_own(pulls: Pulls) -> None:
    pulls.put("m", TAGS="a")
    at_once(pulls.pull(sys_flag=4, subscription="a", expression_type="TAG"))
    opened = grant(pulls, "a")
    assert opened is not None
    assert opened.tag_codes == {tag_code("a")}
    assert grant(pulls) is None


@pytest.mark.parametrize(
    "changes", [{"expression_type": "SQL92", "subscription": "TRUE"}, {"queue_offset": 9}]
)
async def test_what_is_filtered_by_an_expression_or_not_found_leaves_no_read_grant(
    pulls: Pulls, changes: dict[str, Any]
) -> None:
    pulls.parts.change(enablePropertyFilter="true")
    pulls.put("m", TAGS="a")
    asked: dict[str, Any] = {"sys_flag": 4, "subscription": "*", "expression_type": "TAG"} | changes
    at_once(pulls.pull(**asked))
    assert grant(pulls, changes.get("subscription", "*")) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda pulls: pulls.parts.change(brokerPermission="2"),
        lambda pulls: pulls.parts.add_topic("Other"),
        lambda pulls: pulls.parts.groups.let_read(GROUP, TOPIC, False),
        lambda pulls: pulls.subscribe("b", version=2),
        lambda pulls: pulls.subscribe(model="BROADCASTING"),
        lambda pulls: pulls.parts.consumers.lost(pulls.connection),
    ],
    ids=["settings", "topics", "groups", "subscription", "model", "members"],
)
async def test_read_grants_end_when_what_they_rest_on_changes(
    pulls: Pulls, change: Callable[[Pulls], None]
) -> None:
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1

    pulls.subscribe()
    pulls.put("m")
    at_once(pulls.pull())
    pulls.read_grants.on_change(tell)
    assert grant(pulls) is not None
    change(pulls)
    assert grant(pulls) is None
    assert told


async def test_a_heartbeat_that_says_the_same_again_ends_no_read_grant(pulls: Pulls) -> None:
    pulls.subscribe()
    pulls.put("m")
    at_once(pulls.pull())
    pulls.subscribe()
    assert grant(pulls) is not None


async def test_the_first_pull_of_a_new_group_reads_on_while_the_disk_is_full(
    pulls: Pulls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    pulls.put("m0")
    monkeypatch.setattr(JsonTable, "save", fail)
    answer = at_once(
        pulls.pull(0, consumer_group="newcomers", sys_flag=4, subscription="*", expression_type="TAG")
    )
    assert bodies(answer) == ["m0"]


class TestDamagedQueues:
    @pytest.fixture(autouse=True)
    def small_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mending, "_PIECE", 3)

    def damaged(self, pulls: Pulls) -> None:
        pulls.subscribe()
        for number in range(20):
            pulls.put(f"m{number}")
        queue = pulls.parts.store.queues.find(TOPIC, 0)
        assert queue is not None
        buffer, position = queue.place(2)
        buffer[position : position + 300] = bytes(300)

    async def test_a_pull_waits_until_its_queue_is_mended(self, pulls: Pulls) -> None:
        self.damaged(pulls)
        assert bodies(at_once(pulls.pull(0, sys_flag=2))) == ["m0", "m1"]
        held = pulls.pull(2, sys_flag=2)
        assert isinstance(held, asyncio.Future)
        assert not held.done()
        while pulls.parts.store.has_dispatch_work:
            pulls.dispatch()
        answer = await held
        assert bodies(answer) == [f"m{number}" for number in range(2, 20)]

    async def test_a_pull_that_does_not_wait_is_told_to_ask_again(self, pulls: Pulls) -> None:
        self.damaged(pulls)
        answer = at_once(pulls.pull(2))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")
        assert answer.remark == "QUEUE_IS_MENDED"
        while pulls.parts.store.has_dispatch_work:
            pulls.dispatch()
        assert len(bodies(at_once(pulls.pull(2)))) == 18
