"""The clients connected to a broker."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class ClientLanguage(StrEnum):
    """The languages of clients by name, in the order of their numbers in frames."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"
    NODE_JS = "NODE_JS"


class ClientConnection(Body):
    """One connected client."""

    client_addr: str | None = None
    client_id: str | None = None
    language: ClientLanguage | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The members of a consumer group, and their subscriptions."""

    connection_set: list[ClientConnection] = []
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class ProducerConnection(Body):
    """The members of a producer group."""

    connection_set: list[ClientConnection] = []


class ProducerInfo(Body):
    """One producer."""

    client_id: str | None = None
    language: ClientLanguage | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str | None = field(name="remoteIP", default=None)
    version: Int32 = 0


class ProducerTableInfo(Body):
    """The producers of a broker, by group."""

    data: dict[str, list[ProducerInfo]] = {}
