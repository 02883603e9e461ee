"""One request as a page sees it: who looks, at which cluster, in which language, and what the URL says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pyromq.console.languages import Texts
from pyromq.console.security.origin import BrowserOrigin
from pyromq.console.security.roles import Person, UserRole
from pyromq.console.security.sessions import BrowserSession

if TYPE_CHECKING:
    from pyromq.admin.cluster import Cluster
    from pyromq.console.clusters import ShownCluster
    from pyromq.console.state import State
    from pyromq.console.watch.values import Snapshot
    from pyromq.protocol.record import StoredMessage

COOKIE = "pyromq_console"
SECURE_COOKIE = "__Host-pyromq_console"
MAX_PAGE_SIZE = 500
_PAGE_SIZE = 50


@dataclass(slots=True)
class Visit:
    request: Request
    state: "State"
    origin: BrowserOrigin
    session: BrowserSession | None
    texts: Texts
    theme: str
    shown: "ShownCluster | None" = None
    asked: "Cluster | None" = None
    """The same cluster with its own table of what did not answer to this page."""
    cookies: dict[str, str] = field(default_factory=dict)
    """Choices of this visit that the browser keeps."""
    is_shared: bool = False
    """The answer is for everybody: the place of the person's name stays open."""

    @property
    def person(self) -> Person:
        assert self.session is not None, "a page without a session has no person"
        return self.session.person

    @property
    def cluster(self) -> "Cluster":
        assert self.asked is not None, "this page belongs to no cluster"
        return self.asked

    @property
    def cluster_name(self) -> str:
        return "" if self.shown is None else self.shown.name

    @property
    def snapshot(self) -> "Snapshot":
        assert self.shown is not None, "this page belongs to no cluster"
        return self.shown.snapshot

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def now_ms(self) -> int:
        return self.state.clock.now_ms()

    def text(self, name: str, otherwise: str = "") -> str:
        """A parameter of the URL, without spaces around it."""
        return self.query.get(name, otherwise).strip()

    def number(self, name: str, otherwise: int | None = None) -> int | None:
        """A whole number of the URL; 400 if it is none."""
        given = self.text(name)
        if not given:
            return otherwise
        if len(given) > 20 or not given.removeprefix("-").isdecimal():
            raise HTTPException(400, f"{name}={given}: expected a whole number")
        return int(given)

    def flag(self, name: str) -> bool:
        return self.text(name) in ("1", "true", "on")

    @property
    def page_number(self) -> int:
        return max(1, self.number("page", 1) or 1)

    @property
    def page_size(self) -> int:
        return max(1, min(MAX_PAGE_SIZE, self.number("size", _PAGE_SIZE) or _PAGE_SIZE))

    def may(self, role: UserRole) -> bool:
        return self.person.role >= role

    def body_of(self, message: "StoredMessage") -> bytes | None:
        """The part of a body that the person may see; None without the right to read bodies."""
        return self.state.masks.body(message.body) if self.person.reads_bodies else None

    def require_bodies(self) -> None:
        if not self.person.reads_bodies:
            raise HTTPException(403, self.texts("error.no_bodies"))
