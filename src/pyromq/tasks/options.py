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
    """After a worker has died, its tasks come again in this time. Workers that live renew theirs."""
    queues: _Count = 8
    """Queues on each broker of a topic that is created."""
    max_delay_s: _Positive = 3 * 86_400 - 60
    """As long as the broker's timerMaxDelaySec allows; a longer wait is made of several."""
    max_retries: _Count = 100
    """How often a task comes again, after a crash or given back, before it is a dead letter."""
    max_message_bytes: _Count = 4 * 1024 * 1024
    """As the broker's maxMessageSize."""


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
