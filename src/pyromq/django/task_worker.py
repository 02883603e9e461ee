"""Runs Django's tasks on threads: a task is acknowledged when its result is stored.

A task that is delivered again after a crash runs again, unless its result is there already.
"""

import json
import logging
import threading
from collections.abc import Iterable
from traceback import format_exception
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from pyromq.django.task_api import TaskContext, TaskError, TaskResultStatus, task_finished, task_started
from pyromq.django.task_records import TaskRecord, record_of, result_of, unpacked_record
from pyromq.django.tasks import RocketTasks, TaskConnection
from pyromq.errors import BadMessage, PyroError
from pyromq.tasks.intake import Intake, TakenTask

_log = logging.getLogger(__name__)

_LOOK_S = 1.0


class DjangoWorker:
    """`run` returns after `stop`, which signal handlers and other threads may call."""

    def __init__(self, backend: RocketTasks, queues: Iterable[str], threads: int, worker_id: str) -> None:
        self._backend = backend
        self._connection: TaskConnection = backend.connection
        self._intake = Intake(self._connection.link, queues, threads)
        self._threads = threads
        self.worker_id = worker_id
        self._stopping = threading.Event()

    def __repr__(self) -> str:
        return f"<DjangoWorker {self.worker_id} {self._intake!r}>"

    def stop(self) -> None:
        """Take nothing more; tasks that run end."""
        self._stopping.set()

    def run(self) -> None:
        loop = self._connection.thread
        loop.call_soon(self._intake.start)
        working = [
            threading.Thread(target=self._work, name=f"task-{number}") for number in range(self._threads)
        ]
        for each in working:
            each.start()
        while not self._stopping.wait(_LOOK_S):
            pass
        loop.run(self._intake.stop)
        for each in working:
            each.join()
        loop.run(self._intake.close)

    def _work(self) -> None:
        loop = self._connection.thread
        while (taken := loop.run(self._intake.next)) is not None:
            close_old_connections()
            try:
                self._handle(taken)
            except BadMessage as problem:
                _log.error("task is a dead letter id=%s: %s", taken.message.message_id, problem)
                self._settle(self._intake.reject, taken, str(problem))
            except PyroError as problem:
                _log.warning("task comes again, its state is not stored: %s", problem)
                self._settle(self._intake.give_back, taken)
            else:
                self._settle(self._intake.ack, taken)
            finally:
                close_old_connections()

    def _settle(self, how: Any, *arguments: Any) -> None:
        self._connection.thread.call_soon(lambda: how(*arguments))

    def _handle(self, taken: TakenTask) -> None:
        record = unpacked_record(taken.message.body)
        if taken.message.reconsume_times > 0:
            known: TaskRecord = self._connection.newest(record.id) or record
            if known.finished_at is not None:
                return
            record = known
        result = result_of(record)
        self._begin(result)
        self._call(result)
        self._connection.put(record_of(result))
        task_finished.send(type(self._backend), task_result=result)

    def _begin(self, result: Any) -> None:
        now = timezone.now()
        _set(result, status=TaskResultStatus.RUNNING, last_attempted_at=now)
        _set(result, started_at=result.started_at or now)
        result.worker_ids.append(self.worker_id)
        self._connection.put(record_of(result))
        task_started.send(type(self._backend), task_result=result)

    def _call(self, result: Any) -> None:
        task = result.task
        context = [TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = task.call(*context, *result.args, **result.kwargs)
            _set(result, _return_value=_as_json(value), status=TaskResultStatus.SUCCESSFUL)
        except BaseException as problem:
            path = f"{type(problem).__module__}.{type(problem).__qualname__}"
            text = "".join(format_exception(problem))
            result.errors.append(TaskError(exception_class_path=path, traceback=text))
            _set(result, _return_value=None, status=TaskResultStatus.FAILED)
        _set(result, finished_at=timezone.now())


def _as_json(value: Any) -> Any:
    """As it is read back; raises TypeError for what JSON has no form for."""
    return json.loads(json.dumps(value))


def _set(result: Any, **values: Any) -> Any:
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result
