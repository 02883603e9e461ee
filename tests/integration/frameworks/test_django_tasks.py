"""Django's tasks on RocketMQ: enqueued, run by a worker on threads of this process, and looked up."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyromq import Message, Producer
from pyromq.errors import ConfigError, TransportError
from pyromq.testing import RunningCluster
from pyromq.testing.held_ports import held_port

pytest.importorskip("django_tasks")
pytestmark = pytest.mark.filterwarnings("ignore")

TIMEOUT_S = 60.0

BACKEND = "pyromq.django.tasks.RocketTasks"
Run = Callable[..., Any]


@contextmanager
def project(rocketmq: RunningCluster, **options: Any) -> Iterator[Any]:
    """The tasks, with the cluster as their broker."""
    from django.test import override_settings
    from tests.support import django_task_functions as functions

    from pyromq.django.tasks import TaskConnection

    given = {"namesrv": rocketmq.namesrv, "namespace": "shop", **options}
    tasks = {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": given}}
    functions.noted.clear()
    with override_settings(TASKS=tasks):
        try:
            yield functions
        finally:
            TaskConnection.close_all()


@contextmanager
def working(threads: int = 2, *queues: str) -> Iterator[None]:
    from django_tasks import task_backends

    from pyromq.django.task_worker import DjangoWorker

    worker = DjangoWorker(task_backends["default"], queues or ("default", "mail"), threads, "w1")
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        yield
    finally:
        worker.stop()
        running.join()


@pytest.fixture(autouse=True)
def _project() -> None:
    from tests.support.django_project import set_up

    set_up()


def finished(result: Any) -> Any:
    until = time.monotonic() + TIMEOUT_S
    while not result.is_finished:
        assert time.monotonic() < until, result
        time.sleep(0.05)
        result.refresh()
    return result


def test_tasks_run_once_and_their_results_are_read(rocketmq: RunningCluster) -> None:
    with project(rocketmq) as tasks:
        results = [tasks.note.enqueue(number) for number in range(20)]
        later = tasks.note_later.enqueue({"a": [1, None]})
        assert tasks.note.get_result(results[0].id).status == "READY"
        with working():
            assert [finished(each).return_value for each in results] == list(range(20))
            assert finished(later).return_value == {"a": [1, None]}
        assert len(tasks.noted) == 21
        (worker,) = results[0].worker_ids
        assert worker == "w1"
        assert results[0].enqueued_at <= results[0].started_at <= results[0].finished_at


def test_a_task_that_fails_says_why_and_one_that_takes_its_context_gets_it(
    rocketmq: RunningCluster, error_logs: Any
) -> None:
    with project(rocketmq) as tasks:
        failed, strange = tasks.fail.enqueue(), tasks.strange_value.enqueue()
        first = tasks.attempt.enqueue()
        with working():
            (error,) = finished(failed).errors
            assert failed.status == "FAILED"
            assert error.exception_class is ValueError
            assert "on purpose" in error.traceback
            assert finished(strange).errors[0].exception_class is TypeError
            assert finished(first).return_value == 1
    error_logs.expect_repeatedly("state=FAILED")


def test_a_task_runs_after_its_time_and_higher_priorities_come_first(rocketmq: RunningCluster) -> None:
    from django.utils import timezone

    with project(rocketmq) as tasks:
        at = timezone.now() + timedelta(seconds=3)
        later = tasks.note.using(run_after=at).enqueue("later")
        results = [tasks.note.using(priority=each).enqueue(each) for each in (-100, 100, 0)]
        with working(1):
            for each in results:
                finished(each)
            assert finished(later).started_at >= at - timedelta(milliseconds=50)
        assert tasks.noted == [100, 0, -100, "later"]


def test_a_worker_reads_the_queues_that_it_is_given(rocketmq: RunningCluster) -> None:
    with project(rocketmq) as tasks:
        other = tasks.note.enqueue("default")
        mail = tasks.note.using(queue_name="mail").enqueue("mail")
        with working(1, "mail"):
            assert finished(mail).return_value == "mail"
        assert tasks.noted == ["mail"]
        other.refresh()
        assert other.status == "READY"


def test_with_a_transaction_a_task_runs_if_and_only_if_it_commits(rocketmq: RunningCluster) -> None:
    from django.db import transaction
    from django.utils import timezone

    with project(rocketmq, transactional=True) as tasks:
        with suppress(KeyError), transaction.atomic():
            tasks.note.enqueue("rolled back")
            raise KeyError("as a view does")
        with transaction.atomic():
            committed = tasks.note.enqueue("committed")
            at = timezone.now() + timedelta(seconds=2)
            timed = tasks.note.using(run_after=at, priority=100).enqueue("timed")
        outside = tasks.note.enqueue("outside")
        with working():
            for each in (committed, outside, timed):
                finished(each)
        assert timed.started_at >= at - timedelta(milliseconds=50)
        assert sorted(tasks.noted) == ["committed", "outside", "timed"]


def test_without_the_option_a_task_is_sent_at_once(rocketmq: RunningCluster) -> None:
    from django.db import transaction

    with project(rocketmq) as tasks, working(), transaction.atomic():
        assert finished(tasks.note.enqueue("at once")).return_value == "at once"


def test_a_task_that_comes_again_counts_its_attempts_and_is_not_run_if_it_had_ended(
    rocketmq: RunningCluster,
) -> None:
    from django_tasks import task_backends

    from pyromq.django.task_records import TaskRecord, packed_record, record_of
    from pyromq.django.task_worker import DjangoWorker
    from pyromq.tasks.intake import TakenTask

    with project(rocketmq) as tasks:
        backend = task_backends["default"]
        result = tasks.attempt.enqueue()
        backend.connection.put(_changed(record_of(result), status="RUNNING", worker_ids=["dead"]))
        worker = DjangoWorker(backend, ["default"], 1, "w2")

        class Again:
            reconsume_times = 1
            body = packed_record(record_of(result))

        again: Any = TakenTask("default", Again())  # type: ignore[arg-type]
        worker._handle(again)
        worker._handle(again)
        assert tasks.noted == [2]
        result.refresh()
        assert result.worker_ids == ["dead", "w2"]
        assert isinstance(record_of(result), TaskRecord)


def _changed(record: Any, **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(record, **changes)


def test_what_is_not_a_task_is_a_dead_letter(rocketmq: RunningCluster, error_logs: Any) -> None:
    with project(rocketmq) as tasks:
        tasks.note.enqueue("first")
        body = b'{"id":"1","path":"os.remove","queue":"default","priority":0,"backend":"default",'
        with Producer("strangers", rocketmq.namesrv, namespace="shop") as producer:
            producer.send(Message("DJANGO_default", b"not JSON"))
            producer.send(Message("DJANGO_default", body + b'"args":[],"kwargs":{}}'))
        with working():
            until = time.monotonic() + TIMEOUT_S
            while len(letters := rocketmq.dead_letters("shop%DJANGO_default")) < 2:
                assert time.monotonic() < until
                time.sleep(0.05)
    assert sorted(str(each.error)[:10] for each in letters) == ["not a task", "os.remove "]
    error_logs.expect_repeatedly("task is a dead letter")


def test_a_result_that_is_not_there_and_bad_options_are_told(rocketmq: RunningCluster) -> None:
    from django.core.management import CommandError, call_command
    from django_tasks.exceptions import TaskResultDoesNotExist

    from pyromq.django.tasks import RocketTasks, level_of

    with project(rocketmq) as tasks:
        with pytest.raises(TaskResultDoesNotExist):
            tasks.note.get_result("nothing")
        for arguments, said in (
            (["--queue", "other"], "--queue other: the backend has default, mail"),
            (["--threads", "0"], "at least 1"),
            (["--backend", "other"], "--backend other: TASKS has default"),
        ):
            with pytest.raises(CommandError, match=said):
                call_command("pyromq_worker", *arguments, stdout=StringIO())
    for options, said in (({"invisibles": 1}, "invisible_s"), ({"transactional": "yes"}, "True or False")):
        with pytest.raises(ConfigError, match=said):
            RocketTasks("default", {"OPTIONS": options})
    assert [level_of(each) for each in (-100, 0, 100)] == [0, 5, 10]


def test_a_cluster_that_is_away_is_told_each_time_and_nothing_is_left_of_a_try() -> None:
    from django.core.management import CommandError, call_command

    from pyromq.client.blocking import LoopThread

    async def running() -> int:
        return len(asyncio.all_tasks())

    with held_port() as port:
        away = cast(RunningCluster, SimpleNamespace(namesrv=f"127.0.0.1:{port}"))
        with project(away) as tasks:
            before = LoopThread.shared().run(running)
            for _ in range(3):
                with pytest.raises(TransportError):
                    tasks.note.enqueue(1)
            with pytest.raises(CommandError, match="the cluster cannot be reached: no name server"):
                call_command("pyromq_worker", stdout=StringIO())
            assert LoopThread.shared().run(running) == before
