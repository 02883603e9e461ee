"""Django's tasks on RocketMQ: `TASKS = {"default": {"BACKEND": "pyromq.django.tasks.RocketTasks", …}}`.

Needs `pyromq[django]`. `docs/howto/django-tasks.md` says what can be set.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils import timezone

from pyromq.client.blocking import LoopThread, TransactionProducer
from pyromq.django.task_api import (
    BaseTaskBackend,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from pyromq.django.task_records import TaskRecord, packed_record, record_of, result_of, unpacked_record
from pyromq.errors import ConfigError
from pyromq.tasks.keyed import KeyedTopic
from pyromq.tasks.link import OutgoingTask, TaskLink
from pyromq.tasks.options import split_task_options

RESULTS_TOPIC = "DJANGO-RESULTS"
_LEVELS = 10
"""Of priorities: brokers have a queue for each. Django has −100 to 100."""
_OWN_OPTIONS = frozenset({"namesrv", "transactional", "database"})


class TaskConnection:
    """Of one process: Django makes a backend for each thread."""

    _all: "dict[str, TaskConnection]" = {}  # noqa: RUF012
    _making = threading.Lock()

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
        self.thread = LoopThread.shared()
        self.link = TaskLink("DJANGO", options.get("namesrv"), given, max_priority=_LEVELS)
        self.results = KeyedTopic(RESULTS_TOPIC, self.link.client)
        self._database = options.get("database", DEFAULT_DB_ALIAS)
        self._transactions: TransactionProducer | None = None
        self.thread.run(self._start)

    async def _start(self) -> None:
        try:
            await self.link.start()
            await self.results.start()
        except BaseException:
            await self.link.close()
            raise

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TaskConnection":
        key = repr(sorted(options.items()))
        with cls._making:
            found = cls._all.get(key)
            if found is None or not found.thread.is_of_this_process:
                found = cls._all[key] = cls(options)
            return found

    @classmethod
    def close_all(cls) -> None:
        with cls._making:
            for each in cls._all.values():
                if each.thread.is_of_this_process:
                    each.close()
            cls._all.clear()

    def close(self) -> None:
        if self._transactions is not None:
            self._transactions.close()
        self.thread.run(self.results.close)
        self.thread.run(self.link.close)

    def transactions(self) -> TransactionProducer:
        with self._making:
            if self._transactions is None:
                # Imported late: it needs `pyromq.django` in INSTALLED_APPS.
                from pyromq.django.outbox import outbox_check

                check = partial(outbox_check, using=self._database)
                producer = TransactionProducer("DJANGO-TRANSACTIONS", check=check, **self.link.client)
                producer.start()
                self._transactions = producer
            return self._transactions

    def put(self, record: TaskRecord) -> None:
        self.thread.run(self.results.put, record.id, packed_record(record), record.status)

    def newest(self, result_id: str) -> TaskRecord | None:
        """One that is finished, or else the last attempt."""
        found = self.thread.run(self.results.find, result_id)
        records = [unpacked_record(each.body) for each in found]
        return max(records, key=lambda each: each.rank, default=None)


class RocketTasks(BaseTaskBackend):  # type: ignore[misc]
    """`OPTIONS`: `namesrv`, and those of `TaskOptions` and `ClientSettings`.

    With `transactional`, a task that is enqueued in a transaction of `database` runs if, and only if, that
    commits; needs `pyromq.django` in INSTALLED_APPS.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        where = f"TASKS[{alias!r}]['OPTIONS']"
        split_task_options({k: v for k, v in self.options.items() if k not in _OWN_OPTIONS}, where)
        self.is_transactional = self.options.get("transactional", False)
        if not isinstance(self.is_transactional, bool):
            raise ConfigError(f"{where}['transactional']", self.is_transactional, "True or False")
        self.database = self.options.get("database", DEFAULT_DB_ALIAS)

    @property
    def connection(self) -> TaskConnection:
        return TaskConnection.of(self.options)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=uuid4().hex,
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        record, connection = record_of(result), self.connection
        outgoing = OutgoingTask(
            queue=task.queue_name,
            body=packed_record(record),
            id=result.id,
            name=record.path,
            priority=level_of(task.priority),
            eta_ms=None if task.run_after is None else round(task.run_after.timestamp() * 1000),
        )
        if self.is_transactional and transaction.get_connection(self.database).in_atomic_block:
            # Imported late: it needs `pyromq.django` in INSTALLED_APPS.
            from pyromq.django.outbox import send_on_commit

            connection.thread.run(connection.link.declare, task.queue_name)
            transaction.on_commit(partial(connection.put, record), using=self.database, robust=True)
            # A half message has no time: the worker sends it again for its time.
            message = connection.link.message(outgoing, is_timed=False)
            send_on_commit(connection.transactions(), message, using=self.database)
        else:
            connection.put(record)
            connection.thread.run(connection.link.send, outgoing)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        record = self.connection.newest(result_id)
        if record is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(record)


def level_of(priority: int) -> int:
    """−100 to 100 as 0 to 10."""
    return round((priority + 100) * _LEVELS / 200)
