"""Chance as a dependency: everything random that need not be secret, and the number of this process.

Both differ from run to run, so they come from one place: a simulation sets them, and is then repeated by its
seed. Secrets come from the module `secrets`.
"""

import os
import random as _system
from collections.abc import Callable, MutableSequence, Sequence
from secrets import token_hex
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

_source: Any = _system
"""A `random.Random`, or the module, which has the same functions and another state after a fork."""
_process_id: Callable[[], int] = os.getpid


def set_chance(source: _system.Random, process_id: Callable[[], int]) -> None:
    """From now on all chance comes from here; for simulations only."""
    global _source, _process_id
    _source, _process_id = source, process_id


def reset_chance() -> None:
    """The machine's own chance again."""
    global _source, _process_id
    _source, _process_id = _system, os.getpid


def process_id() -> int:
    return _process_id()


def random() -> float:
    """At least 0.0, less than 1.0."""
    return float(_source.random())


def randrange(stop: int) -> int:
    return int(_source.randrange(stop))


def getrandbits(count: int) -> int:
    return int(_source.getrandbits(count))


def choice(choices: Sequence[T]) -> T:
    chosen: T = _source.choice(choices)
    return chosen


def shuffle(values: MutableSequence[Any]) -> None:
    _source.shuffle(values)


def token(size_bytes: int) -> str:
    """Hexadecimal digits that no other process has, even if applications have seeded `random` alike."""
    if _source is _system:
        return token_hex(size_bytes)
    return f"{getrandbits(8 * size_bytes):0{2 * size_bytes}x}"


def uuid() -> UUID:
    return UUID(int=getrandbits(128), version=4)
