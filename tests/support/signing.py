"""Signers of one connection: ours, and one that signs as Apache's clients do."""

from collections.abc import Callable

from pyromq.clock import Clock
from pyromq.cluster.signing import Sign, signers
from pyromq.protocol.frame import Frame
from pyromq.security.signature import Credentials, signing_fields


def signer(credentials: Credentials, namespace_v2: str | None = None, clock: Clock | None = None) -> Sign:
    new_signer = signers(credentials, namespace_v2, clock)
    assert new_signer is not None
    return new_signer()


def apache_signer(credentials: Credentials) -> Callable[[Frame], None]:
    def sign(frame: Frame) -> None:
        frame.ext.update(signing_fields(frame.ext, frame.body, credentials))

    return sign
