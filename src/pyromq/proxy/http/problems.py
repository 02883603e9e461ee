"""Early ends of a request: an answer that says why, or a peer that is gone."""

from pyromq.errors import PyroError


class PeerGone(PyroError):
    """Nothing more can be sent."""


class HttpError(PyroError):
    """A request that gets this status and text as its answer."""

    def __init__(self, status: int, text: str, **more: object) -> None:
        super().__init__(text)
        self.status = status
        self.more = more
        """Further fields of the answer."""
