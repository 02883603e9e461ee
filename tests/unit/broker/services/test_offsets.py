"""Where groups stand, where queues begin and end, and how groups are sent elsewhere."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_parts import (
    BROKER_NAME,
    BrokerParts,
    FakeChannel,
    broker_parts,
    caller_on,
    refusal,
)
from tests.support.loop import turn_until
from tests.support.small_stores import append, dispatch_all

from pyromq.broker.services import offsets as offsets_module
from pyromq.broker.services.offsets import Offsets
from pyromq.broker.tables.clients import Client
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout, Refused
from pyromq.filesystem import Files
from pyromq.protocol import json_body
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, BodyAnswer, Request
from pyromq.protocol.codes import Language, ResponseCode
from pyromq.protocol.requests.inspection import GetConsumerStatus
from pyromq.protocol.requests.membership import ConsumerData, MessageModel, SubscriptionData
from pyromq.protocol.requests.offsets import (
    CloneGroupOffset,
    ConsumerOffsetSerializeWrapper,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    ResetOffset,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.pushes import (
    GetConsumerStatusBody,
    GetConsumerStatusFromClient,
    ResetConsumerOffset,
)
from pyromq.remoting.slices import Slices
from pyromq.store.json_table import JsonTable

MAX = 2**63 - 1


class TickingClock(ManualClock):
    """A millisecond passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


class World:
    def __init__(self, parts: BrokerParts, slices: Slices | None = None) -> None:
        self.parts = parts
        self.slices = slices or Slices(parts.clock)
        self.reset_topics: list[str] = []
        self.offsets = Offsets(
            parts.live, parts.store, parts.tables, slices=self.slices, on_reset=self.reset_topics.append
        )
        parts.add_topic("T", queues=2)
        parts.groups.find("g")

    def fill(self, queue_id: int, messages: int, every_s: float = 1) -> int:
        """Messages of one queue, one every so often; the time of the first."""
        first_ms = self.parts.clock.now_ms()
        for number in range(messages):
            append(self.parts.store, b"%d" % number, topic="T", queue_id=queue_id)
            self.parts.clock.advance(every_s)
        dispatch_all(self.parts.store)
        return first_ms

    def update(self, offset: int, *, group: str = "g", topic: str = "T", queue_id: int = 0) -> Answer | None:
        request = UpdateConsumerOffset(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        return self.offsets.update(request, caller_on())

    def query(self, group: str = "g", queue_id: int = 0, set_zero: bool | None = None) -> int:
        request = QueryConsumerOffset(
            consumer_group=group, topic="T", queue_id=queue_id, set_zero_if_not_found=set_zero
        )
        return self.offsets.query(request, caller_on()).offset

    def reset(self, **fields: Any) -> dict[int, int]:
        values = {"group": "g", "topic": "T", "timestamp": -1, "is_force": True, **fields}
        answer = asyncio.run(self.offsets.reset(ResetOffset(**values), caller_on()))
        body = json_body.decode(answer.body, ResetOffsetBody)
        assert {queue.broker_name for queue in body.offset_table} == {BROKER_NAME}
        return {queue.queue_id: offset for queue, offset in body.offset_table.items()}

    def join(
        self,
        client_id: str,
        *topics: str,
        group: str = "g",
        model: MessageModel = MessageModel.CLUSTERING,
        language: int = Language.JAVA,
        version: int = 401,
    ) -> FakeChannel:
        connection = FakeChannel(f"10.0.0.1:{len(client_id)}")
        self.parts.consumers.register(
            Client(connection, client_id, language, version, 0),
            ConsumerData(
                group_name=group,
                message_model=model,
                subscription_data_set=[SubscriptionData(topic=topic) for topic in topics or ("T",)],
            ),
        )
        return connection


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with broker_parts(tmp_path) as parts:
        yield World(parts)


class TestCommitting:
    def test_what_was_committed_is_found(self, world: World) -> None:
        assert world.update(42) is None
        assert world.query() == 42

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queue_id": 2}, ResponseCode.INVALID_PARAMETER),
            ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
            ({"offset": -1}, ResponseCode.INVALID_PARAMETER),
        ],
    )
    def test_nonsense_is_refused(self, world: World, wrong: dict[str, Any], code: int) -> None:
        values: dict[str, Any] = {"offset": 1, **wrong}
        assert refusal(lambda: world.update(**values)).code == code

    def test_a_queue_the_topic_no_longer_has_can_be_read_to_its_end(self, world: World) -> None:
        world.fill(1, 3)
        world.parts.add_topic("T", queues=1)
        world.update(2, queue_id=1)
        assert world.query(queue_id=1) == 2

    def test_members_of_a_broadcasting_group_keep_their_offsets_themselves(self, world: World) -> None:
        world.join("a", model=MessageModel.BROADCASTING)
        answer = world.update(5)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert world.parts.offsets.query("g", "T", 0) == -1

    def test_a_commit_is_passed_over_while_a_reset_waits(self, world: World) -> None:
        world.update(5)
        world.parts.offsets.assign_reset("g", "T", 0, 1)
        answer = world.update(6)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert world.query() == 1


class TestFirstTime:
    def test_a_group_that_is_new_reads_a_complete_queue_from_its_beginning(self, world: World) -> None:
        world.fill(0, 3)
        assert world.query() == 0

    def test_an_empty_queue_is_complete(self, world: World) -> None:
        assert world.query() == 0

    def test_a_client_may_decide_by_itself(self, world: World) -> None:
        world.fill(0, 3)
        assert refusal(lambda: world.query(set_zero=False)).code == ResponseCode.QUERY_NOT_FOUND
        assert world.query(set_zero=True) == 0

    def test_a_queue_that_lost_messages_is_not_complete(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(world.parts.store.queues, "min_offset", lambda *_: 1)
        assert refusal(world.query).code == ResponseCode.QUERY_NOT_FOUND

    def test_a_queue_whose_beginning_is_far_away_is_left_to_the_client(self, tmp_path: Path) -> None:
        with broker_parts(tmp_path) as parts:
            world = World(parts)
            world.fill(0, 3)
            parts.store._reader._in_memory_bytes = 1
            assert refusal(world.query).code == ResponseCode.QUERY_NOT_FOUND


class TestQueues:
    def test_ends_and_times(self, world: World) -> None:
        first_ms = world.fill(0, 5)
        store = world.offsets
        assert store.max_offset(GetMaxOffset(topic="T", queue_id=0), caller_on()) == OffsetAnswer(offset=5)
        assert store.min_offset(GetMinOffset(topic="T", queue_id=0), caller_on()).offset == 0
        earliest = GetEarliestStoreTime(topic="T", queue_id=0)
        assert store.earliest_time(earliest, caller_on()).timestamp == first_ms

    def test_a_queue_nobody_wrote_to_is_empty(self, world: World) -> None:
        store = world.offsets
        end = store.max_offset(GetMaxOffset(topic="Nothing", queue_id=7), caller_on())
        assert end == OffsetAnswer(offset=0)
        assert store.min_offset(GetMinOffset(topic="T", queue_id=-1), caller_on()).offset == 0
        earliest = GetEarliestStoreTime(topic="Nothing", queue_id=0)
        assert store.earliest_time(earliest, caller_on()).timestamp == -1

    @pytest.mark.parametrize(
        ("boundary", "offset"),
        [(None, 1), ("LOWER", 1), ("lower", 1), ("UPPER", 3), ("upper", 3), ("neither", 1)],
    )
    def test_a_moment_has_a_first_and_a_last_message(
        self, world: World, boundary: str | None, offset: int
    ) -> None:
        world.fill(0, 1)
        at_ms = world.fill(0, 3, every_s=0)
        world.parts.clock.advance(1)
        world.fill(0, 1)
        request = SearchOffset(topic="T", queue_id=0, timestamp=at_ms, boundary_type=boundary)
        assert world.offsets.search(request, caller_on()) == OffsetAnswer(offset=offset)


class TestManyAtOnce:
    async def test_all_offsets(self, world: World) -> None:
        world.update(3)
        answer = await world.offsets.all_consumers(GetAllConsumerOffsets(), caller_on())
        table = json_body.decode(answer.body, ConsumerOffsetSerializeWrapper)
        assert table.offset_table == {"T@g": {0: 3}}

    def test_all_delay_offsets(self, world: World) -> None:
        world.parts.tables.delay_offsets.advance(3, 17)
        body = world.offsets.all_delays(GetAllDelayOffsets(), caller_on()).body
        assert body.offset_table == {3: 17}

    @pytest.mark.parametrize("topic", [None, "", "T"])
    def test_a_group_gets_the_offsets_of_another(self, world: World, topic: str | None) -> None:
        world.update(3)
        request = CloneGroupOffset(src_group="g", dest_group="h", topic=topic)
        asyncio.run(world.offsets.clone(request, caller_on()))
        assert world.parts.offsets.query("h", "T", 0) == 3

    @pytest.mark.parametrize(("offline", "cloned"), [(False, -1), (True, 3)])
    def test_topics_the_group_does_not_read_any_more_are_left_out(
        self, world: World, offline: bool, cloned: int
    ) -> None:
        world.update(3)
        world.join("a", "Other")
        request = CloneGroupOffset(src_group="g", dest_group="h", topic="T", offline=offline)
        asyncio.run(world.offsets.clone(request, caller_on()))
        assert world.parts.offsets.query("h", "T", 0) == cloned

    def test_an_unknown_topic_is_not_cloned(self, world: World) -> None:
        world.update(3)
        world.parts.topics.delete("T")
        asyncio.run(world.offsets.clone(CloneGroupOffset(src_group="g", dest_group="h"), caller_on()))
        assert world.parts.offsets.topics_of("h") == []

    def test_the_least_offsets_of_all_groups(self, world: World) -> None:
        for group, queue_id, offset in [("g", 0, 30), ("h", 0, 10), ("i", 0, 20), ("h", 1, 40), ("g", 1, 5)]:
            world.parts.offsets.commit(group, "T", queue_id, offset)
        request = QueryCorrectionOffsets(filter_groups="h,", compare_group="i", topic="T")
        body = asyncio.run(world.offsets.correction(request, caller_on())).body
        assert body.correction_offsets == {0: 20, 1: 5}
        request = QueryCorrectionOffsets(compare_group="g", topic="T")
        body = asyncio.run(world.offsets.correction(request, caller_on())).body
        assert body.correction_offsets == {0: 10, 1: 5}

    def test_the_least_offset_counts_only_what_is_still_in_the_queue(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(world.parts.store.queues), "min_offset", lambda *_: 10)
        for group, offset in [("a", 5), ("b", 30), ("c", 20), ("d", 12)]:
            world.parts.offsets.commit(group, "T", 0, offset)
        request = QueryCorrectionOffsets(filter_groups="d", compare_group="b", topic="T")
        body = asyncio.run(world.offsets.correction(request, caller_on())).body
        assert body.correction_offsets == {0: 20}

    def test_a_group_behind_everyone_gets_the_largest_number(self, world: World) -> None:
        world.parts.offsets.commit("g", "T", 0, 30)
        world.parts.offsets.commit("slow", "T", 0, 3)
        world.parts.offsets.commit("slow", "T", 1, 3)
        request = QueryCorrectionOffsets(filter_groups="slow", compare_group="slow", topic="T")
        body = asyncio.run(world.offsets.correction(request, caller_on())).body
        assert body.correction_offsets == {0: MAX, 1: MAX}


class TestResetOnTheServer:
    def test_all_queues_go_to_a_moment(self, world: World) -> None:
        first_ms = world.fill(0, 5)
        world.fill(1, 5)
        world.update(4)
        assert world.reset(timestamp=first_ms + 2000) == {0: 2, 1: 0}
        assert world.query() == 2
        assert world.parts.offsets.pending_reset("g", "T", 0) == 2
        assert world.reset_topics == ["T"]

    def test_very_many_queues_are_reset_in_slices(self, world: World) -> None:
        world.parts.add_topic("Wide", queues=1000)
        ticking = World(world.parts, Slices(TickingClock()))
        assert len(ticking.reset(topic="Wide", timestamp=-1)) == 1000
        assert ticking.slices.pauses > 100

    def test_the_end_is_a_moment_too(self, world: World) -> None:
        world.fill(0, 5)
        assert world.reset(timestamp=-1) == {0: 5, 1: 0}

    def test_one_queue_goes_to_an_offset(self, world: World) -> None:
        world.fill(0, 5)
        assert world.reset(queue_id=0, offset=3) == {0: 3}
        assert world.parts.offsets.pending_reset("g", "T", 1) is None

    def test_one_queue_goes_to_a_moment(self, world: World) -> None:
        first_ms = world.fill(0, 5)
        assert world.reset(queue_id=0, offset=-1, timestamp=first_ms + 1000) == {0: 1}

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ({"topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"queue_id": 0, "offset": 7}, ResponseCode.SYSTEM_ERROR),
            ({"queue_id": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR),
        ],
    )
    def test_a_reset_to_nowhere_is_refused(self, world: World, wrong: dict[str, Any], code: int) -> None:
        world.fill(0, 5)
        assert refusal(lambda: world.reset(**wrong)).code == code
        assert world.reset_topics == []

    def test_a_topic_that_cannot_be_read_has_nothing_to_reset(self, world: World) -> None:
        world.parts.add_topic("T", queues=0)
        assert refusal(world.reset).code == ResponseCode.SYSTEM_ERROR


class TestResetOfClients:
    @pytest.fixture
    def old(self, tmp_path: Path) -> Iterator[World]:
        with broker_parts(tmp_path / "old", broker={"server_side_reset": False}) as parts:
            world = World(parts)
            world.fill(0, 5)
            world.fill(1, 5)
            world.update(4)
            world.update(1, queue_id=1)
            yield world

    def test_every_member_is_told_and_nothing_moves_forward_unless_forced(self, old: World) -> None:
        one, two = old.join("a"), old.join("bb")
        assert old.reset(timestamp=-1, is_force=False) == {0: 4, 1: 1}
        assert old.reset(timestamp=-1, is_force=True) == {0: 5, 1: 5}
        for connection in (one, two):
            (_, told) = connection.oneways
            assert isinstance(told, ResetConsumerOffset)
            assert (told.group, told.topic, told.timestamp, told.is_force) == ("g", "T", -1, True)
            assert json_body.decode(told.body, ResetOffsetBody).offset_table == {
                MessageQueue("T", BROKER_NAME, 0): 5,
                MessageQueue("T", BROKER_NAME, 1): 5,
            }
        assert old.parts.offsets.pending_reset("g", "T", 0) is None

    def test_clients_in_cpp_get_a_body_they_can_read(self, old: World) -> None:
        one = old.join("a", language=Language.CPP)
        old.reset(timestamp=0)
        (told,) = one.oneways
        assert isinstance(told, ResetConsumerOffset)
        body = json_body.decode(told.body, ResetOffsetBodyForC)
        assert [(queue.queue_id, queue.offset) for queue in body.offset_table] == [(0, 0), (1, 0)]

    def test_somebody_must_be_there_to_be_told(self, old: World) -> None:
        assert refusal(old.reset).code == ResponseCode.CONSUMER_NOT_ONLINE

    def test_the_group_must_have_read_every_queue(self, old: World) -> None:
        old.join("a")
        old.parts.offsets.remove_group("g")
        assert refusal(old.reset).code == ResponseCode.SYSTEM_ERROR

    def test_an_ancient_client_cannot_be_reset(self, old: World) -> None:
        fine, ancient = old.join("a"), old.join("bb", version=27)
        assert refusal(old.reset).code == ResponseCode.SYSTEM_ERROR
        assert fine.oneways == ancient.oneways == []


class TestStatus:
    async def test_every_member_is_asked_and_those_who_fail_are_left_out(self, world: World) -> None:
        def standing_at(offset: int) -> BodyAnswer[GetConsumerStatusBody]:
            table = {MessageQueue("T", BROKER_NAME, 0): offset}
            return BodyAnswer(body=GetConsumerStatusBody(message_queue_table=table))

        def late(_: Request[Any]) -> Answer:
            raise CallTimeout("too late")

        one, two, three = world.join("a"), world.join("bb"), world.join("ccc")
        one.answers = lambda _: standing_at(3)
        two.answers = late
        three.answers = lambda _: standing_at(5)
        request = GetConsumerStatus(topic="T", group="g")
        body = (await world.offsets.status(request, caller_on())).body
        assert body.consumer_table == {
            "a": {MessageQueue("T", BROKER_NAME, 0): 3},
            "ccc": {MessageQueue("T", BROKER_NAME, 0): 5},
        }
        assert one.calls == [GetConsumerStatusFromClient(topic="T", group="g")]
        request = GetConsumerStatus(topic="T", group="g", client_addr="a")
        body = (await world.offsets.status(request, caller_on())).body
        assert list(body.consumer_table) == ["a"]

    async def test_nobody_is_there(self, world: World) -> None:
        with pytest.raises(Refused) as refused:
            await world.offsets.status(GetConsumerStatus(topic="T", group="g"), caller_on())
        assert refused.value.code == ResponseCode.SYSTEM_ERROR


class TestOnDisk:
    def stored(self, world: World) -> int:
        """What a broker started now would find."""
        file = world.parts.store.table("consumerOffset.json")
        return OffsetTable(file, ManualClock()).query("g", "T", 0)

    async def test_offsets_are_written_now_and_then(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.parts.live.now = world.parts.live.now.updated({"flushConsumerOffsetInterval": "1"})
        saved = asyncio.Event()
        persist = world.parts.offsets.persist_in_thread

        async def persist_and_tell(slices: Slices) -> None:
            await persist(slices)
            saved.set()

        monkeypatch.setattr(world.parts.offsets, "persist_in_thread", persist_and_tell)
        world.update(7)
        task = asyncio.create_task(world.offsets.run())
        async with asyncio.timeout(60):
            await saved.wait()
        task.cancel()
        await asyncio.wait([task])
        assert self.stored(world) == 7

    def test_the_last_commits_are_written_at_the_end(self, world: World) -> None:
        world.update(8)
        assert self.stored(world) == -1
        world.offsets.persist()
        assert self.stored(world) == 8

    async def test_what_cannot_be_written_is_tried_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
    ) -> None:
        world.parts.live.now = world.parts.live.now.updated({"flushConsumerOffsetInterval": "1"})
        full = OSError(28, "No space left on device")
        attempts = asyncio.Event()
        save = JsonTable.save_from_thread

        def fail_once(file: JsonTable, value: Any) -> None:
            if not attempts.is_set():
                loop.call_soon_threadsafe(attempts.set)
                raise full
            save(file, value)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(JsonTable, "save_from_thread", fail_once)
        world.update(9)
        task = asyncio.create_task(world.offsets.run())
        async with asyncio.timeout(60):
            await attempts.wait()
            await turn_until(lambda: self.stored(world) == 9)
        task.cancel()
        await asyncio.wait([task])
        error_logs.expect("offsets could not be written")

    async def test_offsets_of_very_many_groups_are_copied_in_slices_and_all_written(
        self, tmp_path: Path
    ) -> None:
        file = JsonTable(Files(), tmp_path / "offsets.json")
        table, slices = OffsetTable(file, ManualClock()), Slices(TickingClock())
        for number in range(1000):
            table.commit(f"g{number}", "T", 0, number)
        await table.persist_in_thread(slices)
        assert slices.pauses > 100
        again = OffsetTable(file, ManualClock())
        assert [again.query(f"g{number}", "T", 0) for number in range(1000)] == list(range(1000))

    async def test_an_end_in_the_middle_of_the_copy_loses_nothing(self, tmp_path: Path) -> None:
        file = JsonTable(Files(), tmp_path / "offsets.json")
        table, slices = OffsetTable(file, ManualClock()), Slices(TickingClock())
        for number in range(1000):
            table.commit(f"g{number}", "T", 0, 7)
        copying = asyncio.create_task(table.persist_in_thread(slices))
        await asyncio.sleep(0)
        copying.cancel()
        await asyncio.wait([copying])
        table.persist()
        assert OffsetTable(file, ManualClock()).query("g999", "T", 0) == 7

    async def test_a_slow_thread_never_writes_over_something_newer(self, tmp_path: Path) -> None:
        file = JsonTable(Files(), tmp_path / "offsets.json")
        table = OffsetTable(file, ManualClock())
        table.commit("g", "T", 0, 1)
        older, older_turn = table.wrapper(), table._next_turn()
        older.offset_table = {key: dict(queues) for key, queues in older.offset_table.items()}
        table.commit("g", "T", 0, 2)
        table.persist()
        table._save(older, older_turn, 0)
        assert OffsetTable(file, ManualClock()).query("g", "T", 0) == 2

    @pytest.mark.parametrize("end", ["persist", "abandon"])
    async def test_at_the_end_no_thread_is_still_writing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
    ) -> None:
        table = OffsetTable(JsonTable(Files(), tmp_path / "offsets.json"), ManualClock())
        began, may_end = threading.Event(), threading.Event()
        steps: list[str] = []
        save = JsonTable.save_from_thread

        def save_slowly(file: JsonTable, value: Any) -> None:
            began.set()
            assert may_end.wait(60)
            save(file, value)
            steps.append("saved")

        monkeypatch.setattr(JsonTable, "save_from_thread", save_slowly)
        table.commit("g", "T", 0, 1)
        writing = asyncio.create_task(table.persist_in_thread(Slices(ManualClock())))
        await asyncio.to_thread(began.wait, 60)
        writing.cancel()
        await asyncio.wait([writing])
        threading.Timer(0.05, may_end.set).start()
        getattr(table, end)()
        steps.append("ended")
        assert steps[0] == "saved"
        assert steps[-1] == "ended"

    async def test_a_thread_that_was_slow_to_start_writes_nothing_after_the_end(self, tmp_path: Path) -> None:
        table = OffsetTable(JsonTable(Files(), tmp_path / "offsets.json"), ManualClock())
        table.commit("g", "T", 0, 1)
        turn = table._next_turn()
        table.abandon()
        table._save(table.wrapper(), turn, 0)
        assert not (tmp_path / "offsets.json").exists()

    def test_only_what_belongs_to_nobody_is_cleaned_away(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(world.parts.store.queues, "min_offset", lambda *_: 50)
        world.join("a", group="subscribed")
        for group, topic, offset in [
            ("g", "T", 10),  # behind, but it may come back
            ("subscribed", "T", 10),
            ("deleted", "T", 10),
            ("deleted", "U", 90),  # there are messages still
            ("g", "Deleted", 10),
        ]:
            world.parts.offsets.commit(group, topic, 0, offset)
        asyncio.run(world.offsets.remove_dead())
        assert sorted(world.parts.offsets.pairs()) == [("T", "g"), ("T", "subscribed"), ("U", "deleted")]

    async def test_cleaning_happens_by_itself(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offsets_module, "CLEAN_EVERY_ROUNDS", 2)
        world.parts.live.now = world.parts.live.now.updated({"flushConsumerOffsetInterval": "1"})
        cleaned = asyncio.Event()

        async def clean() -> None:
            cleaned.set()

        monkeypatch.setattr(world.offsets, "remove_dead", clean)
        task = asyncio.create_task(world.offsets.run())
        async with asyncio.timeout(60):
            await cleaned.wait()
        task.cancel()
        await asyncio.wait([task])

    async def test_cleaning_that_fails_is_tried_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
    ) -> None:
        monkeypatch.setattr(offsets_module, "CLEAN_EVERY_ROUNDS", 1)
        world.parts.live.now = world.parts.live.now.updated({"flushConsumerOffsetInterval": "1"})
        cleaned = asyncio.Event()
        failures = [OSError("too many open files")]

        async def clean() -> None:
            if failures:
                raise failures.pop()
            cleaned.set()

        monkeypatch.setattr(world.offsets, "remove_dead", clean)
        task = asyncio.create_task(world.offsets.run())
        async with asyncio.timeout(60):
            await cleaned.wait()
        task.cancel()
        await asyncio.wait([task])
        error_logs.expect("trying again")
