"""A task and what became of it, as a record: the message of the task has it, and the topic of results."""

from datetime import datetime
from typing import Any

import msgspec
from django.utils.module_loading import import_string

from pyromq.django.task_api import Task, TaskError, TaskResult, TaskResultStatus
from pyromq.errors import BadMessage


class TaskFailure(msgspec.Struct, frozen=True):
    exception_class_path: str
    traceback: str


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    path: str
    """Of the function."""
    queue: str
    priority: int
    backend: str
    args: list[Any]
    kwargs: dict[str, Any]
    run_after: datetime | None = None
    status: str = "READY"
    enqueued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_attempted_at: datetime | None = None
    errors: list[TaskFailure] = []
    worker_ids: list[str] = []
    return_value: Any = None

    @property
    def rank(self) -> int:
        """The highest counts, in whatever order records were stored."""
        return {"READY": 0, "RUNNING": len(self.worker_ids)}.get(self.status, 2**31)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TaskRecord)


def record_of(result: Any) -> TaskRecord:
    task = result.task
    return TaskRecord(
        id=result.id,
        path=task.module_path,
        queue=task.queue_name,
        priority=task.priority,
        backend=result.backend,
        args=list(result.args),
        kwargs=dict(result.kwargs),
        run_after=task.run_after,
        status=str(result.status.value),
        enqueued_at=result.enqueued_at,
        started_at=result.started_at,
        finished_at=result.finished_at,
        last_attempted_at=result.last_attempted_at,
        errors=[TaskFailure(each.exception_class_path, each.traceback) for each in result.errors],
        worker_ids=list(result.worker_ids),
        return_value=result._return_value,
    )


def result_of(record: TaskRecord) -> Any:
    """Raises BadMessage if there is no such task here."""
    try:
        task = import_string(record.path)
    except ImportError as problem:
        raise BadMessage(f"there is no task {record.path}: {problem}") from None
    if not isinstance(task, Task):
        raise BadMessage(f"{record.path} is not a task")
    result = TaskResult(
        task=task.using(
            priority=record.priority,
            queue_name=record.queue,
            backend=record.backend,
            run_after=record.run_after,
        ),
        id=record.id,
        status=TaskResultStatus(record.status),
        enqueued_at=record.enqueued_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        last_attempted_at=record.last_attempted_at,
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=[
            TaskError(exception_class_path=each.exception_class_path, traceback=each.traceback)
            for each in record.errors
        ],
        worker_ids=list(record.worker_ids),
    )
    object.__setattr__(result, "_return_value", record.return_value)
    return result


def packed_record(record: TaskRecord) -> bytes:
    return _encoder.encode(record)


def unpacked_record(body: bytes) -> TaskRecord:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as problem:
        raise BadMessage(f"not a task of Django: {problem}") from None
