"""Adds the namespace and then both signatures, which cover everything else, to every request.

Apache's servers check the second one and pass over the first; ours check the first, which covers more.
"""

from collections.abc import Callable
from functools import partial

from pyromq.chance import token
from pyromq.clock import Clock, SystemClock
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.full_signature import FULL_SIGNATURE, Stamp, full_signature
from pyromq.security.signature import Credentials, signing_fields, user_fields

Sign = Callable[[Frame], None]
"""Signs a frame in place."""


def signers(
    credentials: Credentials | None, namespace_v2: str | None = None, clock: Clock | None = None
) -> Callable[[], Sign] | None:
    """Makes the signer of each connection; None if frames are sent unchanged."""
    if namespace_v2 is None and credentials is None:
        return None
    return partial(_Signer, credentials, namespace_v2, clock if clock is not None else SystemClock())


class _Signer:
    def __init__(self, credentials: Credentials | None, namespace_v2: str | None, clock: Clock) -> None:
        self._credentials = credentials
        self._namespace_v2 = namespace_v2
        self._clock = clock
        self._session = token(8).encode()
        self._number = 0

    def __repr__(self) -> str:
        return f"<_Signer {self._credentials} signed={self._number}>"

    def __call__(self, frame: Frame) -> None:
        if self._namespace_v2 is not None:
            frame.ext["nsd"], frame.ext["ns"] = "true", self._namespace_v2
        credentials = self._credentials
        if credentials is None:
            return
        if frame.form == HeaderForm.BINARY:
            # java: brokers find nothing where an empty text was, and check the word "null" instead
            frame.ext = {name: text for name, text in frame.ext.items() if text}
        frame.ext.update(user_fields(credentials))
        self._number += 1
        stamp = Stamp(self._clock.now_ms(), self._session, self._number)
        frame.ext[FULL_SIGNATURE] = full_signature(frame, stamp, credentials.secret_key)
        frame.ext.update(signing_fields(frame.ext, frame.body, credentials))
