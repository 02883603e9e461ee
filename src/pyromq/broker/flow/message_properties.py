"""Reading and extending the properties of a message without parsing all of them.

Of two pairs with the same name the later one counts. Requests bring properties as text, which is searched
many times faster than bytes; records hold them as bytes.
"""

from pyromq.protocol import properties as props
from pyromq.protocol.properties import PAIR_SEPARATOR, get_property, without_property

_MAX_LEVEL_DIGITS = 9

_POP_CK = f"{props.POP_CK}\x01"
_TRANSACTION = f"{props.TRANSACTION_PREPARED}\x01"
_INNER_NUM = f"{props.INNER_NUM}\x01"
_PRIORITY = f"{props.PRIORITY}\x01"
_DELAY = f"{props.DELAY}\x01"
_TIMER = "TIMER_DEL"
"""The common prefix of the three properties that ask for delivery at a certain time."""


def pair(name: str, value: str) -> str:
    return f"{name}\x01{value}\x02"


def closed(text: str | None) -> str:
    """Properties that end with a separator, so that more can follow; some clients leave it out."""
    if not text:
        return ""
    if not text.isascii():
        # java: a character that UTF-8 cannot encode becomes a question mark
        text = text.encode("utf-8", "replace").decode()
    return text if text[-1] == PAIR_SEPARATOR else text + PAIR_SEPARATOR


def with_property(raw: bytes, name: str, value: str) -> bytes:
    """The properties of a record with one property set or replaced."""
    others = without_property(raw, name)
    if others and others[-1] != 2:
        others += b"\x02"
    return others + pair(name, value).encode()


def is_unusual(text: str) -> bool:
    """Whether the properties may require that the message is changed or refused. Few do."""
    return (
        _TRANSACTION in text or _TIMER in text or _POP_CK in text or _INNER_NUM in text or _PRIORITY in text
    )


def is_true(properties: str | bytes, name: str) -> bool:
    """java: only `true` counts, in upper or lower case."""
    value = get_property(properties, name)
    return value is not None and value.lower() == "true"


def delay_level(text: str) -> int:
    """The delay level that a message asks for; 0 if it asks for none or the value is not a number."""
    return _number(text, props.DELAY, 0) if _DELAY in text else 0


def priority(text: str) -> int:
    """The priority of a message; -1 if it has none or the value is not a number."""
    return _number(text, props.PRIORITY, -1) if _PRIORITY in text else -1


def _number(text: str, name: str, other: int) -> int:
    number = get_property(text, name)
    if number is None or len(number) > _MAX_LEVEL_DIGITS or not number.isascii():
        return other
    digits = number[1:] if number[0] in "+-" else number
    return int(number) if digits.isdigit() else other
