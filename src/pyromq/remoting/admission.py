"""Whether a caller may send a request; the server asks for every request, on every path.

The fast path and direct headers do not read enough of a request to ask. A connection may use them only while
the admission vouches for it.
"""

from typing import Any, Protocol

from pyromq.protocol.catalogue import Declaration, Request
from pyromq.remoting.routing import Caller


class Admission(Protocol):
    """Both methods return to say yes and raise Refused to say no."""

    version: int
    """Changes when the rules change. A connection is vouched for while its `vouched_version` equals this
    number: everything it sends or pulls would be authorized. `identify` and `authorize` set the connection's
    number; a change of the rules invalidates it on all connections at once."""

    def identify(self, caller: Caller) -> None:
        """Check who the caller is. Called before the request is decoded, and also for unsupported codes."""
        ...

    def authorize(self, declaration: Declaration, request: Request[Any], caller: Caller) -> None:
        """Check that the caller may do what `declaration.needs_of(request)` lists."""
        ...
