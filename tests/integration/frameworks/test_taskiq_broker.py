"""Taskiq on RocketMQ: tasks, results and schedules in one process, without a worker of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyromq.clock import SystemClock
from pyromq.errors import BadMessage, ConfigError, StateError
from pyromq.testing import RunningCluster

taskiq = pytest.importorskip("taskiq")
pytestmark = pytest.mark.filterwarnings("ignore")

from taskiq import AckableMessage, BrokerMessage, ScheduledTask, TaskiqResult  # noqa: E402
from taskiq.exceptions import ResultGetError, SendTaskError  # noqa: E402

from pyromq.taskiq import TaskiqBroker, TaskiqResults, TaskiqSchedules  # noqa: E402

TIMEOUT_S = 60.0

New = Callable[..., Any]


@pytest.fixture
async def new(rocketmq: RunningCluster) -> AsyncIterator[New]:
    made: list[TaskiqBroker] = []

    async def broker(**options: Any) -> TaskiqBroker:
        made.append(TaskiqBroker(rocketmq.namesrv, namespace="shop", **options))
        made[-1].is_worker_process = True
        await made[-1].startup()
        return made[-1]

    yield broker
    for each in made:
        await each.shutdown()


def task(number: int, **labels: Any) -> BrokerMessage:
    return BrokerMessage(
        task_id=f"id-{number}", task_name="shop:bill", message=f"{number}".encode(), labels=labels
    )


async def taken(listening: Any) -> AckableMessage:
    async with asyncio.timeout(TIMEOUT_S):
        message: AckableMessage = await anext(listening)
    return message


async def acked(listening: Any, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await taken(listening)
        found.append(int(message.data))
        message.ack()
    return found


async def test_each_task_comes_once_to_one_of_two_workers(new: New) -> None:
    one, other = await new(), await new()
    for number in range(40):
        await one.kick(task(number))
    found: list[int] = []

    async def work(broker: TaskiqBroker) -> None:
        async for message in broker.listen():
            found.append(int(message.data))
            message.ack()
            if len(found) == 40:
                done.set()

    done = asyncio.Event()
    workers = [asyncio.create_task(work(each)) for each in (one, other)]
    async with asyncio.timeout(TIMEOUT_S):
        await done.wait()
    for each in workers:
        each.cancel()
    assert sorted(found) == list(range(40))


async def test_a_task_with_a_delay_waits_at_the_broker_if_need_be_in_several_steps(new: New) -> None:
    for max_delay_s in (60.0, 1.0):
        broker = await new(max_delay_s=max_delay_s, queues=f"later{round(max_delay_s)}")
        before = datetime.now(UTC)
        await broker.kick(task(1, delay=3))
        await broker.kick(task(2))
        assert await acked(broker.listen(), 2) == [2, 1]
        assert datetime.now(UTC) >= before + timedelta(seconds=3)


async def test_a_task_that_runs_for_long_stays_with_its_worker(new: New) -> None:
    one, other = await new(invisible_s=1.0), await new(invisible_s=1.0)
    await one.kick(task(1))
    first, second = one.listen(), other.listen()
    message = await taken(first)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await anext(second)
    message.ack()


async def test_a_worker_that_stops_gives_back_what_it_has_not_done(new: New) -> None:
    one, other = await new(), await new()
    for number in range(5):
        await one.kick(task(number))
    listening = one.listen()
    (done,) = await acked(listening, 1)
    await taken(listening)
    await listening.aclose()
    await one.shutdown()
    assert sorted([done, *await acked(other.listen(), 4)]) == list(range(5))


async def test_tasks_go_to_the_queue_of_their_label_and_higher_priorities_come_first(new: New) -> None:
    broker = await new(queues=["mail", "bills"], max_priority=9, prefetch=1)
    for number in (1, 9, 5):
        await broker.kick(task(number, queue_name="ranked", priority=number))
    ranked = await new(queues="ranked", max_priority=9, prefetch=1)
    assert await acked(ranked.listen(), 3) == [9, 5, 1]
    await broker.kick(task(2, queue_name="bills"))
    await broker.kick(task(3))
    assert sorted(await acked(broker.listen(), 2)) == [2, 3]


async def test_bad_labels_and_options_say_what_was_expected(new: New) -> None:
    broker = await new()
    with pytest.raises(BadMessage, match="the label delay is 'soon': expected seconds"):
        await broker.kick(task(1, delay="soon"))
    with pytest.raises(BadMessage, match="the label priority is 'high': expected a number"):
        await broker.kick(task(1, priority="high"))
    with pytest.raises(ConfigError, match="did you mean 'invisible_s'"):
        TaskiqBroker("127.0.0.1:9876", invisibles=3)
    with pytest.raises(ConfigError, match="invisible_s"):
        TaskiqBroker("127.0.0.1:9876", invisible_s=-1)
    with pytest.raises(ConfigError, match="at least one queue"):
        TaskiqBroker("127.0.0.1:9876", queues=[])
    with pytest.raises(StateError, match="broker is not started"):
        await TaskiqBroker("127.0.0.1:9876").kick(task(1))


async def test_a_task_that_was_kicked_is_run_by_a_receiver_and_its_result_is_read(
    rocketmq: RunningCluster, error_logs: Any
) -> None:
    from taskiq.receiver import Receiver

    broker = TaskiqBroker(rocketmq.namesrv).with_result_backend(TaskiqResults(rocketmq.namesrv))
    broker.is_worker_process = True

    @broker.task
    async def add(one: int, other: int) -> int:
        return one + other

    @broker.task
    async def fail() -> None:
        raise ValueError("on purpose")

    await broker.startup()
    finish = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=4, run_startup=False)
    receiving = asyncio.create_task(receiver.listen(finish))
    try:
        sent = await add.kiq(1, 2)
        result = await sent.wait_result(timeout=TIMEOUT_S)
        assert (result.return_value, result.is_err) == (3, False)
        failed = await (await fail.kiq()).wait_result(timeout=TIMEOUT_S)
        assert failed.is_err
        with pytest.raises(ValueError, match="on purpose"):
            failed.raise_for_error()
        error_logs.expect("Exception found while executing function.")
    finally:
        finish.set()
        await receiving
        await broker.shutdown()


@pytest.fixture
async def results(rocketmq: RunningCluster) -> AsyncIterator[TaskiqResults[Any]]:
    made: TaskiqResults[Any] = TaskiqResults(rocketmq.namesrv)
    await made.startup()
    yield made
    await made.shutdown()


def result(value: Any) -> Any:
    return TaskiqResult(is_err=False, log="a log", return_value=value, execution_time=0.1)


async def test_a_result_is_read_as_often_as_one_likes_with_or_without_its_log(
    results: TaskiqResults[Any],
) -> None:
    assert not await results.is_result_ready("t1")
    with pytest.raises(ResultGetError):
        await results.get_result("t1")
    await results.set_result("t1", result({"a": [1, 2]}))
    await results.set_result("t2", result(None))
    assert await results.is_result_ready("t1")
    for _ in range(2):
        assert (await results.get_result("t1")).return_value == {"a": [1, 2]}
    assert (await results.get_result("t1", with_logs=True)).log == "a log"
    assert (await results.get_result("t2")).log is None
    await results.set_result("t1", result("newer"))
    assert (await results.get_result("t1")).return_value == "newer"


async def test_a_result_that_is_not_kept_is_read_once(rocketmq: RunningCluster) -> None:
    results: TaskiqResults[Any] = TaskiqResults(rocketmq.namesrv, keep_results=False)
    await results.startup()
    await results.set_result("once", result(1))
    assert (await results.get_result("once")).return_value == 1
    assert not await results.is_result_ready("once")
    with pytest.raises(ResultGetError):
        await results.get_result("once")
    await results.shutdown()


async def test_a_result_that_expired_is_not_there(
    rocketmq: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: TaskiqResults[Any] = TaskiqResults(rocketmq.namesrv, expires_s=60)
    await results.startup()
    await results.set_result("short", result(1))
    assert (await results.get_result("short")).return_value == 1
    monkeypatch.setattr("pyromq.tasks.keyed._now_ms", lambda: SystemClock().now_ms() + 120_000)
    with pytest.raises(ResultGetError):
        await results.get_result("short")
    await results.shutdown()
    with pytest.raises(ConfigError, match="expires_s=0: expected a number of seconds greater than 0"):
        TaskiqResults(rocketmq.namesrv, expires_s=0)


async def test_a_result_that_is_not_json_says_so(results: TaskiqResults[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        await results.set_result("odd", result(object()))


async def test_many_tasks_and_results_at_once_share_the_connections(new: New) -> None:
    broker = await new(queues="crowd")
    results: TaskiqResults[Any] = TaskiqResults(**broker.client_options)
    await results.startup()
    await asyncio.gather(*(broker.kick(task(number, queue_name="crowd")) for number in range(50)))
    assert sorted(await acked(broker.listen(), 50)) == list(range(50))
    await asyncio.gather(*(results.set_result(f"crowd-{each}", result(each)) for each in range(50)))
    found = await asyncio.gather(*(results.get_result(f"crowd-{each}") for each in range(50)))
    assert [each.return_value for each in found] == list(range(50))
    await results.shutdown()


async def test_the_progress_of_a_task_is_not_its_result(results: TaskiqResults[Any]) -> None:
    from taskiq.depends.progress_tracker import TaskProgress

    assert await results.get_progress("p1") is None
    await results.set_progress("p1", TaskProgress(state="half", meta={"done": 5}))
    found = await results.get_progress("p1")
    assert found is not None
    assert (found.state, found.meta) == ("half", {"done": 5})
    await results.set_progress("p1", TaskProgress(state="most", meta={"done": 9}))
    assert (await results.get_progress("p1")) == TaskProgress(state="most", meta={"done": 9})
    assert not await results.is_result_ready("p1")


def schedule(**when: Any) -> ScheduledTask:
    return ScheduledTask(task_name="shop:bill", labels={}, args=[1], kwargs={"b": 2}, **when)


async def test_a_schedule_for_a_time_is_delivered_by_the_broker_alone(new: New) -> None:
    broker = await new()
    source = TaskiqSchedules(broker)
    at = datetime.now(UTC) + timedelta(seconds=2)
    await source.add_schedule(schedule(time=at))
    assert await source.get_schedules() == []
    message = await taken(broker.listen())
    assert datetime.now(UTC) >= at
    read = broker.formatter.loads(message.data)
    assert (read.task_name, read.args, read.kwargs) == ("shop:bill", [1], {"b": 2})
    await source.shutdown()


async def test_a_schedule_for_a_time_that_is_over_is_delivered_once_and_at_once(new: New) -> None:
    broker = await new(queues="overdue")
    source = TaskiqSchedules(broker)
    await source.add_schedule(schedule(time=datetime(2000, 1, 1)))
    await source.add_schedule(schedule(time=datetime.now(UTC) + timedelta(seconds=1)))
    assert len(await acked_texts(broker, 2)) == 2
    assert await source.get_schedules() == []
    await source.shutdown()


async def acked_texts(broker: TaskiqBroker, count: int) -> list[str]:
    listening, found = broker.listen(), []
    for _ in range(count):
        message = await taken(listening)
        found.append(broker.formatter.loads(message.data).task_name)
        message.ack()
    return found


async def test_a_deleted_schedule_does_not_come_whether_or_not_the_broker_took_it_back(new: New) -> None:
    broker = await new(max_delay_s=1.0)  # sent again in between: the handle of the first message is stale
    source = TaskiqSchedules(broker)
    listening = broker.listen()
    soon, later = (schedule(time=datetime.now(UTC) + timedelta(seconds=each)) for each in (1, 6))
    for each in (soon, later):
        await source.add_schedule(each)
    await taken(listening)  # the first one has come: the other is on its second way
    await source.delete_schedule(later.schedule_id)
    waiting = asyncio.ensure_future(anext(listening))
    done, _ = await asyncio.wait([waiting], timeout=8)
    assert not done
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await source.shutdown()


async def test_recurring_schedules_are_known_to_every_process_until_they_are_deleted(new: New) -> None:
    broker = await new()
    one, other = TaskiqSchedules(broker), TaskiqSchedules(broker)
    hourly, often = schedule(cron="0 * * * *"), schedule(interval=30)
    await one.add_schedule(hourly)
    await one.add_schedule(often)
    assert {each.schedule_id for each in await one.get_schedules()} == {hourly.schedule_id, often.schedule_id}
    assert {each.cron for each in await other.get_schedules()} == {"0 * * * *", None}
    await one.delete_schedule(hourly.schedule_id)
    assert await one.get_schedules() == [often]
    async with asyncio.timeout(TIMEOUT_S):
        while await other.get_schedules() != [often]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    late = TaskiqSchedules(broker)
    assert await late.get_schedules() == [often]
    for each in (one, other, late):
        await each.shutdown()


async def test_a_recurring_schedule_outlives_the_messages_of_the_topic(
    new: New, rocketmq: RunningCluster
) -> None:
    from pyromq.aio import Reader

    broker = await new()
    source = TaskiqSchedules(broker)
    await source.add_schedule(schedule(cron="* * * * *"))
    async with Reader("TASKIQ-SCHEDULES", "RECURRING", rocketmq.namesrv, namespace="shop") as reader:
        await source.get_schedules()
        await asyncio.to_thread(rocketmq.advance, hours=25)
        (again,) = await source.get_schedules()
        (written,) = await reader.receive(wait_s=TIMEOUT_S)
    assert ScheduledTask.model_validate_json(written.body) == again
    await source.shutdown()


async def test_the_scheduler_of_taskiq_starts_and_sends_what_recurs(
    new: New, rocketmq: RunningCluster
) -> None:
    from taskiq.cli.scheduler.args import SchedulerArgs
    from taskiq.cli.scheduler.run import run_scheduler

    topic = "TASKIQ-SCHEDULES-OF-A-PROCESS"
    worker = await new(queues="recurring")
    there = TaskiqSchedules(worker, topic=topic)
    await there.add_schedule(schedule(interval=1))
    await there.shutdown()
    # Like `taskiq scheduler`: sources are started before their broker, and shut down after it.
    broker = TaskiqBroker(rocketmq.namesrv, namespace="shop", queues="recurring")
    scheduler = taskiq.TaskiqScheduler(broker, [TaskiqSchedules(broker, topic=topic)])
    running = asyncio.create_task(run_scheduler(SchedulerArgs(scheduler, [], configure_logging=False)))
    listening = asyncio.ensure_future(taken(worker.listen()))
    done, _ = await asyncio.wait({running, listening}, return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    await running
    assert done == {listening}
    assert worker.formatter.loads(listening.result().data).kwargs == {"b": 2}


async def test_a_task_for_a_broker_that_is_not_started_is_not_sent(rocketmq: RunningCluster) -> None:
    broker = TaskiqBroker(rocketmq.namesrv)

    @broker.task
    async def nothing() -> None: ...

    with pytest.raises(SendTaskError):
        await nothing.kiq()
