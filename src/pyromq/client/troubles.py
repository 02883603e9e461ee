"""Troubles that last are logged when they begin, change and end; while they last, only for debugging.

A broker that is away fails every pull of every queue, many times a second: that is one trouble, and one line.
"""

import logging
from collections.abc import Hashable
from typing import NamedTuple

from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol.body import MessageQueue


class _Lost(NamedTuple):
    broker_name: str


class _Refusing(NamedTuple):
    broker_name: str
    topic: str
    text: str


class Troubles:
    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._lasting: dict[Hashable, object] = {}

    def __repr__(self) -> str:
        return f"<Troubles {list(self._lasting)}>"

    def happened(self, what: Hashable, problem: Exception, text: str, *args: object) -> None:
        """`what` is in trouble; `text` with `args` says so, and the problem is put after it."""
        kind = _kind(problem)
        is_new = self._lasting.get(what) != kind
        self._lasting[what] = kind
        self._log.log(self._level if is_new else logging.DEBUG, f"{text}: %s", *args, problem)

    def ended(self, what: Hashable, text: str, *args: object) -> None:
        if self._lasting.pop(what, None) is not None:
            # As loud as the trouble: readers of the first line wait for this one.
            self._log.log(self._level, text, *args)

    def of_broker(self, queue: MessageQueue, problem: PyroError, text: str, *args: object) -> None:
        """A request about this queue failed; a broker that is out of reach fails all of them."""
        broker_name = queue.broker_name
        if isinstance(problem, TransportError):
            self.happened(_Lost(broker_name), problem, "broker lost broker=%s", broker_name)
        else:
            # The queues of a topic are refused together.
            self.happened(_Refusing(broker_name, queue.topic, text), problem, text, *args)

    def broker_answered(self, queue: MessageQueue) -> None:
        broker_name = queue.broker_name
        self.ended(_Lost(broker_name), "broker back broker=%s", broker_name)
        for what in list(self._lasting):
            if isinstance(what, _Refusing) and what[:2] == (broker_name, queue.topic):
                self.ended(what, "broker accepts again broker=%s topic=%s", broker_name, queue.topic)


def _kind(problem: Exception) -> object:
    """Texts differ by addresses and times; out of reach is out of reach."""
    if isinstance(problem, TransportError):
        return TransportError
    return problem.code if isinstance(problem, Refused) else type(problem)
