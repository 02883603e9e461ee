"""Adds the namespace and then the signature, which covers everything else, to every request."""

from collections.abc import Callable

from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.signature import Credentials, signing_fields


def signer(
    credentials: Credentials | None, namespace_v2: str | None = None
) -> Callable[[Frame], None] | None:
    """A function that signs a frame in place; None if frames are sent unchanged."""
    if namespace_v2 is None and credentials is None:
        return None

    def sign(frame: Frame) -> None:
        if namespace_v2 is not None:
            frame.ext["nsd"], frame.ext["ns"] = "true", namespace_v2
        if credentials is not None:
            if frame.form == HeaderForm.BINARY:
                # java: brokers find nothing where an empty text was, and check the word "null" instead
                frame.ext = {name: text for name, text in frame.ext.items() if text}
            frame.ext.update(signing_fields(frame.ext, frame.body, credentials))

    return sign
