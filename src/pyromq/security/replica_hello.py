"""How a replica proves to its master that it is a broker of the group, before the HA stream means anything.

    challenge, 40 bytes    mark (8), random bytes (32)
    hello                  mark (8), length of the rest (2); access key, cluster and group, each with its
                           length in front (2); broker id (8), HMAC-SHA256 (32)
    refusal                mark (8), length (2), text

Replicas speak first on the HA port, and Apache's masters ask nothing: so a replica begins as ever, and says
hello only if it is asked. The sum is made over the challenge and the hello before it, with the secret of the
access key. The marks are neither log offsets nor states of the stream: they are negative.
"""

import hmac
import secrets
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from pyromq.errors import RemoteProtocolError
from pyromq.security.signature import Credentials

CHALLENGE_MARK: Final = b"\xffPyroMQ?"
HELLO_MARK: Final = b"\xffPyroMQ!"
REFUSAL_MARK: Final = b"\xffPyroMQ-"
MARK_BYTES: Final = 8
CHALLENGE_BYTES: Final = 40

_MAX_HELD_BYTES: Final = 4096
_LENGTH: Final = Struct(">H")
_ID: Final = Struct(">q")
_SUM_BYTES: Final = 32
_NOBODY_KEY: Final = "a key that no user has"


class HelloMember(NamedTuple):
    """A broker of a group."""

    cluster: str
    group: str
    broker_id: int


def new_challenge() -> bytes:
    return CHALLENGE_MARK + secrets.token_bytes(CHALLENGE_BYTES - MARK_BYTES)


def encode_hello(challenge: bytes, member: HelloMember, credentials: Credentials) -> bytes:
    texts = (credentials.access_key, member.cluster, member.group)
    content = b"".join(map(_text, texts)) + _ID.pack(member.broker_id)
    content += _sum(challenge, content, credentials.secret_key)
    return HELLO_MARK + _LENGTH.pack(len(content)) + content


def encode_refusal(reason: str) -> bytes:
    return REFUSAL_MARK + _text(reason)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    return _LENGTH.pack(len(encoded)) + encoded


def _sum(challenge: bytes, content: bytes, secret_key: str) -> bytes:
    return hmac.digest(secret_key.encode("utf-8", "replace"), challenge + content, "sha256")


class HelloReader:
    """The master's side: holds back what a replica sends until it has proved who it is."""

    def __init__(self, cluster: str, group: str, secrets_of: Callable[[str], tuple[str, ...]]) -> None:
        """`secrets_of`: of an access key; none if it is not a broker's."""
        self.challenge = new_challenge()
        self._own = cluster, group
        self._secrets_of = secrets_of
        self._held = b""

    def feed(self, data: bytes) -> bytes | None:
        """Everything else that it sent; None if it has not said who it is. Raises RemoteProtocolError."""
        self._held += data
        before, mark, rest = self._held.partition(HELLO_MARK)
        end = _LENGTH.size + _length(rest)
        if max(len(before), end) > _MAX_HELD_BYTES:
            raise RemoteProtocolError("it does not say who it is")
        if not mark or len(rest) < end:
            return None
        self._check(rest[_LENGTH.size : end])
        return before + rest[end:]

    def _check(self, hello: bytes) -> None:
        content, claimed = hello[:-_SUM_BYTES], hello[-_SUM_BYTES:]
        texts, rest = [], content
        for _ in range(3):
            end = _LENGTH.size + _length(rest)
            texts.append(rest[_LENGTH.size : end].decode("utf-8", "replace"))
            rest = rest[end:]
        access_key, *group = texts
        known = self._secrets_of(access_key)
        # An unknown account takes as long as a known one, and gets the same answer.
        made = [_sum(self.challenge, content, secret) for secret in known or (_NOBODY_KEY,)]
        if not any(hmac.compare_digest(each, claimed) for each in made) or not known:
            raise RemoteProtocolError(f"its hello has not the signature of a broker: {access_key[:100]!r}")
        if tuple(group) != self._own:
            raise RemoteProtocolError(
                f"it is a broker of {'/'.join(group)}, and this master is one of {'/'.join(self._own)}"
            )


def _length(data: bytes) -> int:
    """The number in front; 0 if it is not complete."""
    return int.from_bytes(data[: _LENGTH.size]) if len(data) >= _LENGTH.size else 0


class MasterOpening:
    """The replica's side: says hello if the master asks for it before the stream begins."""

    def __init__(self, hello: Callable[[bytes], bytes]) -> None:
        """`hello` answers a challenge."""
        self._hello = hello
        self._held = b""
        self._is_asked = False
        self.is_over = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes to send to the master, and those of the stream that came. Raises RemoteProtocolError if
        it refuses this broker."""
        self._held += data
        answer = b""
        if self._held.startswith(CHALLENGE_MARK) and not self._is_asked:
            if len(self._held) < CHALLENGE_BYTES:
                return b"", b""
            self._is_asked = True
            answer = self._hello(self._held[:CHALLENGE_BYTES])
            self._held = self._held[CHALLENGE_BYTES:]
        if self._held.startswith(REFUSAL_MARK):
            end = MARK_BYTES + _LENGTH.size + _length(self._held[MARK_BYTES:])
            if len(self._held) > MARK_BYTES + _LENGTH.size and len(self._held) >= end:
                text = self._held[MARK_BYTES + _LENGTH.size : end].decode("utf-8", "replace")
                raise RemoteProtocolError(f"the master refuses this broker: {text}")
            return answer, b""
        if len(self._held) < MARK_BYTES:
            return answer, b""
        self.is_over = True
        rest, self._held = self._held, b""
        return answer, rest
