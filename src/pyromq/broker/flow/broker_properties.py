"""The properties that this broker adds to every message, and the fields it adds to every send answer."""

from pyromq.broker.flow.message_properties import pair
from pyromq.broker.settings import BrokerSettings
from pyromq.config.live import LiveSettings
from pyromq.protocol import properties as props


class BrokerProperties:
    """Composed once, and again when the settings change."""

    def __init__(self, live: LiveSettings[BrokerSettings]) -> None:
        self.suffix = ""
        """Appended to the properties of every message that is sent."""
        self.reply_suffix = ""
        """The same for a reply, which does not name the cluster."""
        self.answer_fields: dict[str, str] = {}
        """Added to every answer to a send; producers trace their messages by them."""
        live.on_change(self._apply_settings)

    def __repr__(self) -> str:
        return f"<BrokerProperties {self.answer_fields}>"

    def _apply_settings(self, settings: BrokerSettings) -> None:
        trace_on = "true" if settings.trace_on else "false"
        self.answer_fields = {props.MSG_REGION: settings.region_id, props.TRACE_ON: trace_on}
        self.reply_suffix = pair(props.MSG_REGION, settings.region_id) + pair(props.TRACE_ON, trace_on)
        self.suffix = self.reply_suffix + pair(props.CLUSTER, settings.broker_cluster_name)
