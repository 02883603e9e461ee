"""What the broker writes into the properties of a message.

Raw bytes in, raw bytes out: nothing is parsed that need not be, and of two pairs with the same name the later
one counts.
"""

from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property_bytes, without_property

_MOST_LEVEL_DIGITS = 9

_POP_CK = f"{props.POP_CK}\x01".encode()
_TRANSACTION = f"{props.TRANSACTION_PREPARED}\x01".encode()
_INNER_NUM = f"{props.INNER_NUM}\x01".encode()
_TIMER = b"TIMER_DEL"
"""Begins the names of all three properties that ask for delivery at a certain time."""


class Stamp:
    """What every message of this broker is marked with, made once and again when settings change."""

    def __init__(self, live: LiveSettings[BrokerSettings]) -> None:
        self.suffix = b""
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
        self.suffix = (self.reply_suffix + pair(props.CLUSTER, settings.broker_cluster_name)).encode()


def pair(name: str, value: str) -> str:
    return f"{name}\x01{value}\x02"


def raw_properties(text: str | None) -> bytes:
    """The properties of a request as they are stored, ready to have more behind them."""
    if not text:
        return b""
    # java: what UTF-8 cannot write becomes a question mark
    return closed(text.encode("utf-8", "replace"))


def closed(raw: bytes) -> bytes:
    """The same with a separator at the end, which some clients leave out."""
    return raw if not raw or raw[-1] == 2 else raw + b"\x02"


def with_property(raw: bytes, name: str, value: str) -> bytes:
    """The properties with one set, in place of any others of that name."""
    return closed(without_property(raw, name)) + pair(name, value).encode("utf-8", "replace")


def is_unusual(raw: bytes) -> bool:
    """Whether a message that is sent may have to be changed or refused for its properties. Hardly any has."""
    return _POP_CK in raw or _TRANSACTION in raw or _INNER_NUM in raw or _TIMER in raw


def is_true(raw: bytes, name: str) -> bool:
    """java: only `true`, in whatever case, is true."""
    value = get_property_bytes(raw, name)
    return value is not None and value.lower() == b"true"


def delay_level(raw: bytes) -> int:
    """The delay level that a message asks for; what is no number asks for none."""
    text = get_property_bytes(raw, props.DELAY)
    if text is None:
        return 0
    digits = text.lstrip(b"+-") if len(text) <= _MOST_LEVEL_DIGITS else b""
    if not digits.isdigit() or len(text) - len(digits) > 1:
        return 0
    return int(text)
