"""How tasks use a cluster: the same options for every framework."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from pyromq.client.settings import ClientOptions
from pyromq.config.nearest import NearestName
from pyromq.errors import ConfigError

O = TypeVar("O", bound="TaskOptions")  # noqa: E741

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    invisible_s: _Positive = 30.0
    """Seconds after which the tasks of a dead worker are delivered again. Live workers renew theirs."""
    queues: _Count = 8
    """Queues on each broker, for topics that are created."""
    max_delay_s: _Positive = 3 * 86_400 - 60
    """The longest delay of one message, at most the broker's timerMaxDelaySec. Longer ones take steps."""
    max_redeliveries: _Count = 100
    """Redeliveries of a task, after crashes or stops of workers, before it becomes a dead letter."""
    max_message_bytes: _Count = 4 * 1024 * 1024
    """The largest message, at most the broker's maxMessageSize."""


def task_options(given: Mapping[str, Any], kind: type[O], where: str) -> O:
    """Options of the kind; raises ConfigError with the place where a bad one was given."""
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ConfigError(where, dict(given), str(problem)) from None


def split_task_options(given: Mapping[str, Any], where: str) -> tuple[TaskOptions, dict[str, Any]]:
    """The options of tasks, and those of the clients."""
    own = set(TaskOptions.__struct_fields__)
    known = own | ClientOptions.__optional_keys__
    for name in given:
        if name not in known:
            hint = NearestName(known).hint(name, f"there are {', '.join(sorted(known))}")
            raise ConfigError(where, name, f"an option; {hint}")
    mine = {name: value for name, value in given.items() if name in own}
    return task_options(mine, TaskOptions, where), {k: v for k, v in given.items() if k not in own}
