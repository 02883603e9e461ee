"""Reading and changing the settings of a running server, as the text of a properties file."""

from pyromq.protocol.catalogue import BROKER, CONTROLLER, NAMESERVER, Answer, Request, request
from pyromq.protocol.needs import GET, UPDATE, cluster


class SettingsAnswer(Answer):
    body: str = ""


class ChangedSettingsAnswer(Answer):
    # What the operator should know: settings that wait for a restart, and unknown ones.
    remark: str | None = None


@request(318, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="update_namesrv_config")
class UpdateNameServerConfig(Request[ChangedSettingsAnswer]):
    """Change settings of a name server while it runs."""

    body: str = ""


@request(319, to=NAMESERVER, needs=(cluster(GET),), java_name="get_namesrv_config")
class GetNameServerConfig(Request[SettingsAnswer]):
    """Read all settings of a name server."""


@request(25, to=BROKER, needs=(cluster(UPDATE),))
class UpdateBrokerConfig(Request[ChangedSettingsAnswer]):
    """Change settings of a broker while it runs."""

    body: str = ""


class GetBrokerConfigAnswer(Answer):
    # The data version of the broker's topics, as JSON text.
    version: str
    body: str = ""


@request(26, to=BROKER, needs=(cluster(GET),))
class GetBrokerConfig(Request[GetBrokerConfigAnswer]):
    """Read all settings of a broker."""


@request(1009, to=CONTROLLER, needs=(cluster(UPDATE),))
class UpdateControllerConfig(Request[ChangedSettingsAnswer]):
    """Change settings of a controller while it runs."""

    body: str = ""


@request(1010, to=CONTROLLER, needs=(cluster(GET),))
class GetControllerConfig(Request[SettingsAnswer]):
    """Read all settings of a controller."""
