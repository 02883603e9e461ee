"""Hints for a user whom a server refuses for want of keys or TLS."""

from typing import Final

SIGN: Final = "if the cluster has access control, sign requests with --key-file FILE"
USE_TLS: Final = "a server that requires TLS closes other connections: try --tls-trust FILE"


def is_hung_up(text: str) -> bool:
    """Whether a failure says that a server has closed the connection."""
    return "closed the connection" in text
