"""Bodies inside of JSON: as text if they are UTF-8, else as base64."""

from base64 import b64decode, b64encode

from pyromq.proxy.http.problems import HttpError


def read_body(text: str | None, base64: str | None) -> bytes:
    """The body of which exactly one form is given. Raises HttpError."""
    if (text is None) == (base64 is None):
        raise HttpError(400, "a message has either text or base64")
    if base64 is None:
        return (text or "").encode()
    try:
        return b64decode(base64, validate=True)
    except ValueError as problem:
        raise HttpError(400, f"base64 cannot be read: {problem}") from None


def shown_body(body: bytes) -> tuple[str | None, str | None]:
    """Text or base64; the other is None."""
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(body).decode()
