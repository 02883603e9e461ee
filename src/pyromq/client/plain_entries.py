"""The fast path of plain messages into a batch: a message is encoded in one step, without a PreparedMessage.

It declines unusual messages; the general path writes the same bytes for them, or raises. There is a compiled
twin.
"""

import struct
from typing import Final

import msgspec

from pyromq.client.values import Message
from pyromq.compiled import twin
from pyromq.protocol import properties as props
from pyromq.protocol.batch import MIN_ENTRY_SIZE
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR, PROPERTIES_LIMIT_BYTES

_HEAD: Final = struct.Struct(">i8xii")
_LENGTH: Final = struct.Struct(">h")
_KEYS: Final = f"{props.KEYS}{NAME_SEPARATOR}"
_TAGS: Final = f"{props.TAGS}{NAME_SEPARATOR}"
_UNIQUE_KEY: Final = f"{props.UNIQ_KEY}{NAME_SEPARATOR}"


class EncodedEntry(msgspec.Struct, gc=False):
    """A plain message, encoded as the entry of a batch."""

    topic: str
    """As brokers know it."""
    entry: bytes
    unique_key: str
    born_ms: int
    message: Message

    @property
    def wait_stored(self) -> bool:
        return True


def _plain_entry(message: Message, unique_key: str, suffix: str, body_limit: int) -> bytes | None:
    """A message as an entry of a batch; None if the general path must take it.

    The body must be shorter than `body_limit`. `suffix` is appended to the properties.
    """
    body = message.body
    if (
        type(body) is not bytes
        or not 0 < len(body) < body_limit
        or message.properties
        or message.delay_level != 0
        or message.delay_ms is not None
        or message.deliver_at_ms is not None
        or message.priority is not None
        or message.wait_stored is not True
        or type(message.flag) is not int
    ):
        return None
    text = f"{_UNIQUE_KEY}{unique_key}{PAIR_SEPARATOR}{suffix}"
    tags, keys = message.tags, message.keys
    if tags is not None:
        if type(tags) is not str or not tags or PAIR_SEPARATOR in tags:
            return None
        text = f"{_TAGS}{tags}{PAIR_SEPARATOR}{text}"
    if type(keys) is list:
        if len(keys) != 1 or type(keys[0]) is not str or " " in keys[0]:
            return None
        keys = keys[0]
    if keys != ():
        if type(keys) is not str or not keys or PAIR_SEPARATOR in keys:
            return None
        text = f"{_KEYS}{keys}{PAIR_SEPARATOR}{text}"
    try:
        properties = text.encode()
        size = len(properties)
        if size > PROPERTIES_LIMIT_BYTES:
            return None
        head = _HEAD.pack(MIN_ENTRY_SIZE + len(body) + size, message.flag, len(body))
    except (UnicodeEncodeError, struct.error):
        return None
    return b"".join((head, body, _LENGTH.pack(size), properties))


_twin = twin("plain_entries")

plain_entry = _plain_entry if _twin is None else _twin.plain_entry
