"""Which name server to ask: always the same until it fails, then the next; each one once per question."""

import logging
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from pyromq import chance
from pyromq.cluster.retry_table import Retry, retry_of
from pyromq.errors import ConnectFailed, PyroError, Refused, RemoteProtocolError, TransportError

_log = logging.getLogger(__name__)


def name_server_addresses(text: str) -> tuple[str, ...]:
    """Addresses separated by semicolons; of a URL, the part after the last slash."""
    return tuple(address.strip().rpartition("/")[2] for address in text.split(";") if address.strip())


def as_listed(_: list[str]) -> None:
    """Instead of a shuffle: the first one of the list is asked first."""


def _is_its_own(problem: PyroError) -> bool:
    """Whether another name server may answer: this one is unreachable, busy, or sends nonsense."""
    if isinstance(problem, Refused):
        return Retry.OTHER_NAME_SERVER in retry_of(problem.code)
    return isinstance(problem, TransportError | RemoteProtocolError)


class NameServers:
    def __init__(
        self, addresses: Iterable[str], shuffle: Callable[[list[str]], Any] = chance.shuffle
    ) -> None:
        self._shuffle = shuffle
        self._addresses = list(addresses)
        # Shuffled, so that clients with the same list use all name servers.
        shuffle(self._addresses)
        self._failing: set[str] = set()

    def __repr__(self) -> str:
        return f"<NameServers {self}>"

    def __str__(self) -> str:
        return ";".join(sorted(self._addresses))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def current(self) -> str | None:
        return self._addresses[0] if self._addresses else None

    def update(self, addresses: Iterable[str]) -> bool:
        """Use these from now on, first the current one if it is among them; returns whether any changed."""
        wanted = list(dict.fromkeys(addresses))
        if set(wanted) == set(self._addresses):
            return False
        current = self.current
        self._shuffle(wanted)
        if current in wanted:
            wanted.remove(current)
            wanted.insert(0, current)
        self._addresses = wanted
        _log.info("name servers changed addresses=%s", self)
        return True

    def round(self) -> "Round":
        return Round(self)

    def answered(self, address: str) -> None:
        if address in self._failing:
            self._failing.discard(address)
            _log.info("name server answers again address=%s", address)

    def failed(self, address: str, problem: PyroError) -> None:
        _log.log(
            logging.DEBUG if address in self._failing else logging.INFO,
            "name server failed address=%s: %s",
            address,
            problem,
        )
        self._failing.add(address)
        if self.current == address:
            self._addresses.append(self._addresses.pop(0))


class Round:
    """One question: iterate over the addresses, ask inside `with`, and return the answer.

    The code after the loop runs only if no name server answered.
    """

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._asked = ""
        self.left = len(name_servers.addresses)
        """Name servers that have not answered, including the one being asked."""
        self.problems: list[PyroError] = []

    def __iter__(self) -> Iterator[str]:
        for address in self._name_servers.addresses:
            self._asked = address
            yield address
            self.left -= 1

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(problem, PyroError) or not _is_its_own(problem):
            if problem is None:
                self._name_servers.answered(self._asked)
            return False
        self.problems.append(problem)
        self._name_servers.failed(self._asked, problem)
        return True

    def failure(self) -> PyroError:
        """The error to raise when all have failed: the last one."""
        if not self.problems:
            return ConnectFailed("no name server address is known yet")
        last = self.problems[-1]
        if not isinstance(last, TransportError):
            return last
        told = type(last)(f"no name server can be reached (namesrv={self._name_servers}): {last}")
        told.__cause__ = last.__cause__  # its own text is in the message already
        return told
