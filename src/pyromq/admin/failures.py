"""What an operator asked for and the cluster could not give; each sentence ends with what to try next."""

import difflib
from collections.abc import Collection, Mapping

from pyromq.errors import ConnectFailed, PyroError


class NotFound(PyroError):
    """There is no such topic, group, cluster, broker or message."""


class NoNameServer(ConnectFailed):
    """No name server is given, or none answers."""


class PartlyFailed(PyroError):
    """The same was asked of several servers, and some of them failed."""

    def __init__(self, done: Collection[str], failed: Mapping[str, PyroError]) -> None:
        problems = "; ".join(
            f"{problem}" if str(problem).startswith(address) else f"{address}: {problem}"
            for address, problem in failed.items()
        )
        super().__init__(f"failed at {problems}" + (f"; done at {', '.join(done)}" if done else ""))
        self.done = tuple(done)
        self.failed = dict(failed)


class Incomplete(PyroError):
    """An overview that lacks what some servers did not tell."""

    def __init__(self, unanswered: Mapping[str, PyroError]) -> None:
        self.first = next(iter(unanswered.values()))
        more = f" (and {len(unanswered) - 1} more failures)" if len(unanswered) > 1 else ""
        super().__init__(f"this is not everything{more}: {self.first}")


def nearest(word: str, known: Collection[str], otherwise: str) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or what else to try."""
    found = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {found[0]}?" if found else otherwise
