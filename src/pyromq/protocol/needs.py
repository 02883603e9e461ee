"""The rights that a request needs: an action on a resource, stated on its declaration.

The words are those of RocketMQ's access control 2.0, so that its policies mean the same here. Another layer
decides who has which rights.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from pyromq.protocol.names import RETRY_PREFIX, is_kept_by_brokers, lite_parts, popped_topic


class Action(StrEnum):
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = Action


class ResourceType(StrEnum):
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Need(NamedTuple):
    """Any one of these actions on this resource. An empty name is the whole type: all topics, the cluster."""

    actions: tuple[Action, ...]
    resource_type: ResourceType
    name: str = ""


class Rule(NamedTuple):
    """How to find the needs of a request in its fields.

    `path` leads to the names, also through lists (`body.acks.topic`); an empty path names no single resource.
    A missing name becomes the empty name, which requires a right to all resources, unless it
    `may_be_missing`: then it needs no right. With `is_popped` the topic may be that of the group's retries.
    """

    actions: tuple[Action, ...]
    resource_type: ResourceType
    path: tuple[str, ...] = ()
    separator: str = ""
    may_be_missing: bool = False
    is_popped: bool = False

    def __str__(self) -> str:
        where = f" `{'.'.join(self.path)}`" if self.path else ""
        return f"{' or '.join(self.actions)} on {self.resource_type}{where}"

    def needs_of(self, request: Any) -> Iterator[Need]:
        if not self.path:
            yield Need(self.actions, self.resource_type)
            return
        for found in dict.fromkeys(_walk(request, self.path)):
            if not found:
                if not self.may_be_missing:
                    yield Need(self.actions, self.resource_type)
                continue
            for name in found.split(self.separator) if self.separator else (found,):
                if self.is_popped:
                    name = popped_topic(name, request.consumer_group)
                yield need_of(self.actions, self.resource_type, name)


def need_of(actions: tuple[Action, ...], resource_type: ResourceType, name: str) -> Need:
    if resource_type is ResourceType.TOPIC and name.startswith(RETRY_PREFIX):
        # The retry topic of a group belongs to the group: its members send messages back there.
        actions = (SUB,) if actions == (PUB,) else actions
        return Need(actions, ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))
    if resource_type is ResourceType.TOPIC and (lite := lite_parts(name)) is not None:
        return Need(actions, resource_type, lite[0])  # a lite topic belongs to its parent
    if resource_type is ResourceType.TOPIC and is_kept_by_brokers(name):
        # Messages of all topics pass through: a right to `*` must not undo what is denied for one of them.
        is_route = PUB in actions and SUB in actions
        if not is_route and not {GET, LIST}.issuperset(actions):
            return Need((UPDATE,), ResourceType.CLUSTER)
    return Need(actions, resource_type, name)


Needs = tuple[Rule, ...]

NOTHING: Needs = ()
"""For requests from servers to clients: the client has chosen its server."""


def is_administrative(needs: Needs) -> bool:
    """Whether a right to send or to receive messages is not enough: the request shows or changes what an
    operator cares for."""
    return not all({PUB, SUB} & set(rule.actions) for rule in needs)


def cluster(*actions: Action) -> Rule:
    return Rule(actions, ResourceType.CLUSTER)


def every_topic(*actions: Action) -> Rule:
    return Rule(actions, ResourceType.TOPIC)


def every_group(*actions: Action) -> Rule:
    return Rule(actions, ResourceType.GROUP)


def topic(*actions: Action, at: str = "topic", separator: str = "", may_be_missing: bool = False) -> Rule:
    return Rule(actions, ResourceType.TOPIC, tuple(at.split(".")), separator, may_be_missing)


def topic_of_receipt(*actions: Action) -> Rule:
    """The topic of a popped message. Retries of the group are acknowledged by who acknowledges the rest."""
    return Rule(actions, ResourceType.TOPIC, ("topic",), is_popped=True)


def group(
    *actions: Action, at: str = "consumer_group", separator: str = "", may_be_missing: bool = False
) -> Rule:
    return Rule(actions, ResourceType.GROUP, tuple(at.split(".")), separator, may_be_missing)


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The values at a path; none if a list on the way is empty."""
    if isinstance(value, list | set | tuple):
        each: Iterable[Any] = value
        for item in each:
            yield from _walk(item, path)
    elif not path or value is None:
        yield value
    else:
        yield from _walk(getattr(value, path[0]), path[1:])
