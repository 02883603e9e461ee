"""A hello is read however the stream was split, and whatever stands before and after it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import RemoteProtocolError
from pyromq.security.replica_hello import (
    CHALLENGE_MARK,
    HELLO_MARK,
    HelloMember,
    HelloReader,
    MasterOpening,
    encode_hello,
    encode_refusal,
)
from pyromq.security.signature import Credentials

SERVER = Credentials("server", "the password of servers")
MEMBER = HelloMember("c", "g", 1)


def reader() -> HelloReader:
    return HelloReader("c", "g", lambda key: (SERVER.secret_key,) if key == "server" else ())


@given(st.lists(st.integers(0, 200), max_size=5))
def test_both_sides_understand_each_other_however_the_stream_is_split(cuts: list[int]) -> None:
    master = reader()
    replica = MasterOpening(lambda challenge: encode_hello(challenge, MEMBER, SERVER))
    said, stream = b"", b""
    for piece in split(master.challenge + b"twelve bytes", cuts):
        answer, rest = replica.feed(piece) if not replica.is_over else (b"", piece)
        said, stream = said + answer, stream + rest
    assert stream == b"twelve bytes"
    heard = b""
    for piece in split(b"greeting" + said + b"report", cuts):
        heard += master.feed(piece) or b"" if not heard else piece
    assert heard == b"greetingreport"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[one:other] for one, other in itertools.pairwise(places) if one < other]


@pytest.mark.parametrize("position", range(len(HELLO_MARK) + 2, 70))
def test_no_bit_of_a_hello_can_change(position: int) -> None:
    master = reader()
    hello = bytearray(encode_hello(master.challenge, MEMBER, SERVER))
    if position < len(hello):
        hello[position] ^= 1
        with pytest.raises(RemoteProtocolError):
            master.feed(bytes(hello))


@pytest.mark.parametrize(
    "hello", [b"", b"\0", b"\0\0", b"\0\1x", b"\0\x21" + b"\xff" * 33, b"\0\x50" + bytes(80)]
)
def test_what_is_not_a_hello_proves_nothing(hello: bytes) -> None:
    master = reader()
    if len(hello) < 2:
        assert master.feed(HELLO_MARK + hello) is None
    else:
        with pytest.raises(RemoteProtocolError):
            master.feed(HELLO_MARK + hello)


@pytest.mark.parametrize("key_bytes", [0, 4000, 5000, 65_000])
def test_a_hello_of_any_size_is_answered_with_a_short_refusal(key_bytes: int) -> None:
    master = reader()
    hello = encode_hello(master.challenge, MEMBER, Credentials("\n" * key_bytes, "x"))
    with pytest.raises(RemoteProtocolError) as refused:
        master.feed(b"greeting" + hello)
    assert len(encode_refusal(str(refused.value))) < 500
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("said", [bytes(5000), HELLO_MARK + b"\x0f\x00" + bytes(3000)])
def test_a_master_does_not_hold_more_and_more_back(said: bytes) -> None:
    master = reader()
    if said.startswith(HELLO_MARK):
        assert master.feed(said) is None
        said = bytes(5000)
    with pytest.raises(RemoteProtocolError):
        master.feed(said)


def test_a_replica_answers_one_challenge() -> None:
    replica = MasterOpening(lambda challenge: b"hello")
    assert replica.feed(CHALLENGE_MARK + bytes(32)) == (b"hello", b"")
    answer, rest = replica.feed(CHALLENGE_MARK + bytes(32))
    assert (answer, rest) == (b"", CHALLENGE_MARK + bytes(32))


def test_a_master_that_asks_nothing_is_not_told_anything() -> None:
    replica = MasterOpening(lambda challenge: b"hello")
    assert replica.feed(bytes(12)) == (b"", bytes(12))
    assert replica.is_over


def test_a_refusal_is_understood() -> None:
    replica = MasterOpening(lambda challenge: b"hello")
    refusal = encode_refusal("go away")
    assert replica.feed(refusal[:-1]) == (b"", b"")
    with pytest.raises(RemoteProtocolError, match="the master refuses this broker: go away"):
        replica.feed(refusal[-1:])
