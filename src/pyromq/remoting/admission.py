"""May this caller do that? Asked for every request, whichever way it takes through the server.

The fast path and the direct headers do not look at single requests closely enough to ask. A connection may
use them only while the admission vouches for it.
"""

from typing import Any, Protocol

from pyromq.protocol.catalogue import Declaration, Request
from pyromq.remoting.routing import Caller


class Admission(Protocol):
    """Both questions are answered by returning, or by raising Refused."""

    version: int
    """Changes when the rules change. A connection is vouched for while its `vouched_version` is this one,
    which says: whatever it sends or pulls would be authorized. Handing out that number is up to `identify`
    and `authorize`, and changing the rules takes it back from every connection at once."""

    def identify(self, caller: Caller) -> None:
        """Whether the caller is who they say they are; asked before anything of a request is read, also for
        codes that nobody serves."""
        ...

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        """Whether the caller may do what `declaration.needs_of(request)` says."""
        ...
