"""Errors of admin operations; each text ends with a hint."""

import difflib
from collections.abc import Collection, Mapping

from pyromq.errors import ConnectFailed, PyroError


class NotFound(PyroError):
    """A topic, group, cluster, broker or message does not exist."""


class BadPlan(PyroError):
    """A plan that does not fit the brokers."""


class NotKept(PyroError):
    """A replica answered a change: the tables of its master replace it."""


class NoNameServer(ConnectFailed):
    """No name server is given, or none answers."""


class PartlyFailed(PyroError):
    """Several servers were asked the same, and some of them failed."""

    def __init__(self, done: Collection[str], failed: Mapping[str, PyroError]) -> None:
        problems = "; ".join(
            f"{problem}" if str(problem).startswith(address) else f"{address}: {problem}"
            for address, problem in failed.items()
        )
        super().__init__(f"failed at {problems}" + (f"; done at {', '.join(done)}" if done else ""))
        self.done = tuple(done)
        self.failed = dict(failed)


class Incomplete(PyroError):
    """An overview is incomplete because some servers did not answer."""

    def __init__(self, unanswered: Mapping[str, PyroError]) -> None:
        self.first = next(iter(unanswered.values()))
        more = f" (and {len(unanswered) - 1} more failures)" if len(unanswered) > 1 else ""
        super().__init__(f"the result is incomplete{more}: {self.first}")


def nearest(word: str, known: Collection[str], otherwise: str) -> str:
    """A hint for an unknown name: the nearest known one, or `otherwise`."""
    found = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {found[0]}?" if found else otherwise
