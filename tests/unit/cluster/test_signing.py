"""What every request gets before it leaves."""

import random

from tests.support.signing import signer

from pyromq.clock import ManualClock
from pyromq.cluster.signing import signers
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.full_signature import FULL_SIGNATURE, is_fully_signed, read_stamp
from pyromq.security.signature import Credentials, is_signed

CREDENTIALS = Credentials("someone", "secret")


def test_frames_leave_as_they_are_if_nothing_is_to_be_said() -> None:
    assert signers(None) is None


def test_the_namespace_is_signed_with_the_rest() -> None:
    sign = signer(CREDENTIALS, "shop")
    frame = Frame(320, ext={"a": "orders"}, body=b"5 apples")
    sign(frame)
    assert (frame.ext["nsd"], frame.ext["ns"]) == ("true", "shop")
    assert is_signed(frame.ext, b"5 apples", "secret")


def test_what_a_binary_header_cannot_tell_from_nothing_is_not_signed() -> None:
    """Apache's brokers read it as null, and check the signature of that word."""
    sign = signer(CREDENTIALS)
    ext = {"a": "orders", "i": ""}
    in_json, in_binary = Frame(320, ext=dict(ext)), Frame(320, ext=dict(ext), form=HeaderForm.BINARY)
    for frame in (in_json, in_binary):
        sign(frame)
        assert is_signed(frame.ext, frame.body, "secret")
    assert in_json.ext["i"] == ""
    assert "i" not in in_binary.ext


def test_programs_that_seed_chance_alike_sign_for_different_connections() -> None:
    """A server takes a session that it knows from another connection for a replay."""
    signed = []
    for _ in range(2):
        random.seed(1)
        frame = Frame(320)
        signer(CREDENTIALS)(frame)
        signed.append(read_stamp(frame.ext[FULL_SIGNATURE]).session)
    assert signed[0] != signed[1]


def test_the_requests_of_a_connection_are_counted() -> None:
    sign, clock = signer(CREDENTIALS, clock=ManualClock()), ManualClock()
    stamps = []
    for _ in range(3):
        frame = Frame(320, ext={"a": "orders"}, body=b"5 apples")
        sign(frame)
        assert is_fully_signed(frame, "secret")
        stamps.append(read_stamp(frame.ext[FULL_SIGNATURE]))
    assert [stamp.number for stamp in stamps] == [1, 2, 3]
    assert {(stamp.time_ms, stamp.session) for stamp in stamps} == {(clock.now_ms(), stamps[0].session)}
