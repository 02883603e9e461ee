"""The store is small: what belongs to its log, queues, flushes or topics is a method of that face."""

import inspect

import pytest

from pyromq.store.flushes import Flushes
from pyromq.store.log_reading import LogReading
from pyromq.store.message_store import MessageStore
from pyromq.store.queue_reading import QueueReading
from pyromq.store.topics import StoredTopics

MAX_METHODS = 20


@pytest.mark.parametrize("face", [MessageStore, LogReading, QueueReading, Flushes, StoredTopics])
def test_the_store_and_its_faces_have_few_public_methods(face: type) -> None:
    public = [
        name
        for name, value in vars(face).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
    ]
    assert 0 < len(public) <= MAX_METHODS, f"{face.__name__}: {public}"
