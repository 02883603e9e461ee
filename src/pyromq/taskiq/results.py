"""Results of Taskiq in a topic: the key of a result is the task's id.

They are JSON unless another serializer is chosen: a pickle runs the code of whoever may write the topic.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError
from taskiq.serializers import JSONSerializer

from pyromq.client.settings import ClientSettings
from pyromq.errors import ConfigError, StateError
from pyromq.tasks.keyed import KeyedTopic

R = TypeVar("R")

DEFAULT_TOPIC = "TASKIQ-RESULTS"


class TaskiqResults(AsyncResultBackend[R]):
    """A result stays as long as the broker keeps messages; if not `keep_results`, until it is read.

    With `expires_s`, it is not found later than that. Options are those of `ClientSettings`.
    """

    def __init__(
        self,
        namesrv: str | Iterable[str] | None = None,
        *,
        topic: str = DEFAULT_TOPIC,
        keep_results: bool = True,
        expires_s: float | None = None,
        serializer: TaskiqSerializer | None = None,
        **options: Any,
    ) -> None:
        ClientSettings.of(namesrv, **options)  # bad options stop the start
        if expires_s is not None and expires_s <= 0:
            raise ConfigError("expires_s", expires_s, "a number of seconds greater than 0")
        self._client: dict[str, Any] = {"namesrv": namesrv, **options}
        self._topic = topic
        self._keep = keep_results
        self._expires_s = expires_s
        self._serializer = serializer or JSONSerializer()
        self._records: KeyedTopic | None = None

    def __repr__(self) -> str:
        return f"<TaskiqResults in {self._topic}>"

    async def startup(self) -> None:
        if self._records is None:
            records = KeyedTopic(self._topic, self._client, lives_s=self._expires_s)
            await records.start()
            self._records = records

    async def shutdown(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            await records.close()

    @property
    def _running(self) -> KeyedTopic:
        if self._records is None:
            raise StateError("the results are not started: await broker.startup()")
        return self._records

    async def set_result(self, task_id: str, result: TaskiqResult[R]) -> None:
        await self._running.put(task_id, self._serializer.dumpb(result.model_dump()))

    async def is_result_ready(self, task_id: str) -> bool:
        return bool(await self._running.find(task_id))

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[R]:
        found = await self._running.find(task_id)
        if not found:
            raise ResultGetError
        if not self._keep:
            await self._running.forget(task_id)
        result = TaskiqResult[R].model_validate(self._serializer.loadb(found[0].body))
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        await self._running.put(_progress_key(task_id), self._serializer.dumpb(progress.model_dump()))

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        found = await self._running.find(_progress_key(task_id))
        return TaskProgress.model_validate(self._serializer.loadb(found[0].body)) if found else None


def _progress_key(task_id: str) -> str:
    return f"{task_id}:progress"
