"""What the broker writes into the properties of a message.

Nothing is parsed that need not be, and of two pairs with the same name the later one counts. Requests bring
properties as text, which is searched many times faster than bytes; records hold them as bytes.
"""

from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.protocol import properties as props
from pyromq.protocol.properties import PAIR_SEPARATOR, get_property, without_property

_MOST_LEVEL_DIGITS = 9

_POP_CK = f"{props.POP_CK}\x01"
_TRANSACTION = f"{props.TRANSACTION_PREPARED}\x01"
_INNER_NUM = f"{props.INNER_NUM}\x01"
_DELAY = f"{props.DELAY}\x01"
_TIMER = "TIMER_DEL"
"""Begins the names of all three properties that ask for delivery at a certain time."""


class Stamp:
    """What every message of this broker is marked with, made once and again when settings change."""

    def __init__(self, live: LiveSettings[BrokerSettings]) -> None:
        self.suffix = ""
        """Goes behind the properties of a message that is sent."""
        self.reply_suffix = ""
        """The same for a reply, which does not name the cluster."""
        self.answer_fields: dict[str, str] = {}
        """Go into every answer to a send: producers trace their messages by them."""
        live.follow(self._renew)

    def __repr__(self) -> str:
        return f"<Stamp {self.answer_fields}>"

    def _renew(self, settings: BrokerSettings) -> None:
        trace_on = "true" if settings.trace_on else "false"
        self.answer_fields = {props.MSG_REGION: settings.region_id, props.TRACE_ON: trace_on}
        self.reply_suffix = pair(props.MSG_REGION, settings.region_id) + pair(props.TRACE_ON, trace_on)
        self.suffix = self.reply_suffix + pair(props.CLUSTER, settings.broker_cluster_name)


def pair(name: str, value: str) -> str:
    return f"{name}\x01{value}\x02"


def closed(text: str | None) -> str:
    """Properties with a separator at the end, which some clients leave out, so that more can follow."""
    if not text:
        return ""
    if not text.isascii():
        # java: what UTF-8 cannot write becomes a question mark
        text = text.encode("utf-8", "replace").decode()
    return text if text[-1] == PAIR_SEPARATOR else text + PAIR_SEPARATOR


def with_property(raw: bytes, name: str, value: str) -> bytes:
    """The properties of a record with one set, in place of any others of that name."""
    others = without_property(raw, name)
    if others and others[-1] != 2:
        others += b"\x02"
    return others + pair(name, value).encode()


def is_unusual(text: str) -> bool:
    """Whether a message that is sent may have to be changed or refused for its properties. Hardly any has."""
    return _TRANSACTION in text or _TIMER in text or _POP_CK in text or _INNER_NUM in text


def is_true(properties: str | bytes, name: str) -> bool:
    """java: only `true`, in whatever case, is true."""
    value = get_property(properties, name)
    return value is not None and value.lower() == "true"


def delay_level(text: str) -> int:
    """The delay level that a message asks for; what is no number asks for none."""
    if _DELAY not in text:
        return 0
    level = get_property(text, props.DELAY)
    if level is None or len(level) > _MOST_LEVEL_DIGITS or not level.isascii():
        return 0
    digits = level[1:] if level[0] in "+-" else level
    return int(level) if digits.isdigit() else 0
