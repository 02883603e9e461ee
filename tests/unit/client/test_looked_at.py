"""Clients that are looked at on one thread while another one closes them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.producer import Producer

NAMESRV = "127.0.0.1:9876"


class Assigned(list[Any]):
    queues: frozenset[Any] = frozenset()


MEMBERSHIP = SimpleNamespace(assigned=Assigned(), session=SimpleNamespace(client_id="one"))
PARTS = SimpleNamespace(
    membership=MEMBERSHIP,
    handling=SimpleNamespace(delivery=SimpleNamespace(running=0, lost=0)),
    in_flight=InFlightLimit(1, 1),
    sender=SimpleNamespace(statistics=None),
    accumulator=None,
    tracing=None,
)


class Vanishing:
    """There when it is looked at for the first time, gone the next."""

    def __init__(self, value: object) -> None:
        self._value: object = value

    def __get__(self, owner: object, kind: type) -> object:
        value, self._value = self._value, None
        return value


@pytest.mark.parametrize(
    ("client", "attribute", "value"),
    [(Producer, "_parts", PARTS), (PushConsumer, "_parts", PARTS), (PullConsumer, "_parts", PARTS)],
    ids=["producer", "push", "pull"],
)
@pytest.mark.parametrize(
    "look",
    [
        pytest.param(repr, id="repr"),
        pytest.param(lambda client: client.statistics(), id="statistics"),
        pytest.param(lambda client: hasattr(type(client), "assigned") and client.assigned, id="assigned"),
        pytest.param(lambda client: hasattr(type(client), "client_id") and client.client_id, id="client_id"),
    ],
)
def test_a_client_can_be_looked_at_while_it_is_closed(
    client: type, attribute: str, value: object, look: Callable[[Any], object]
) -> None:
    looked_at = client("group", NAMESRV)
    vars(looked_at).pop(attribute)
    changing = type("Changing", (client,), {attribute: Vanishing(value)})
    looked_at.__class__ = changing
    look(looked_at)
