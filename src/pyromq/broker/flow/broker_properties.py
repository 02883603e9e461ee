"""The properties that this broker adds to every message, and the fields it adds to every send answer."""

from contextlib import suppress

from pyromq.broker.flow.message_properties import pair
from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.errors import LocalProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.message_id import RecallHandle, encode_recall_handle


class BrokerProperties:
    """Composed once, and again when the settings change."""

    def __init__(self, live: LiveSettings[BrokerSettings]) -> None:
        self.suffix = ""
        """Appended to the properties of every message that is sent."""
        self.reply_suffix = ""
        """The same for a reply, which does not name the cluster."""
        self.answer_fields: dict[str, str] = {}
        """Added to every answer to a send; producers trace their messages by them."""
        self._broker_name = ""
        live.on_change(self._apply_settings)

    def __repr__(self) -> str:
        return f"<BrokerProperties {self.answer_fields}>"

    def _apply_settings(self, settings: BrokerSettings) -> None:
        self._broker_name = settings.broker_name
        trace_on = "true" if settings.trace_on else "false"
        self.answer_fields = {props.MSG_REGION: settings.region_id, props.TRACE_ON: trace_on}
        self.reply_suffix = pair(props.MSG_REGION, settings.region_id) + pair(props.TRACE_ON, trace_on)
        self.suffix = self.reply_suffix + pair(props.CLUSTER, settings.broker_cluster_name)

    def recall_handle(self, topic: str, slot_ms: int, unique_key: str) -> str | None:
        """The handle in the answer for a message that waits for its time in a slot; None if it has none."""
        if not names.is_retry_topic(topic):
            # java: any time in the slot will do; a name with a space would make an unreadable handle
            with suppress(LocalProtocolError):
                return encode_recall_handle(RecallHandle(topic, self._broker_name, slot_ms + 1, unique_key))
        return None
