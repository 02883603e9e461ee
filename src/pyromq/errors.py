"""The words everyone shares for what can go wrong.

Foreign errors are translated into these once, on the floor that meets them.
"""


class PyroError(Exception):
    """Anything PyroMQ raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # A pool of processes that cannot read a worker's error waits for ever.
        return _revived, (type(self), self.args, self.__dict__)


def _revived(kind: type[PyroError], args: tuple[object, ...], state: dict[str, object]) -> PyroError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(PyroError):
    """A setting has a value we cannot start with."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        super().__init__(f"{key}={value!s}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


class ProtocolError(PyroError):
    """Bytes or values that the wire protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """We were about to send something the protocol cannot carry: a bug on our side."""


class RemoteProtocolError(ProtocolError):
    """The other side sent something that is not the protocol: hang up on it."""


class TransportError(PyroError):
    """The network failed; trying again, perhaps elsewhere, may help."""


class ConnectFailed(TransportError):
    """No connection could be opened."""


class ConnectionLost(TransportError):
    """The connection ended while something waited on it."""


class CallTimeout(TransportError):
    """No answer came before the deadline."""


class Refused(PyroError):
    """The other side answered, and its answer was no.

    A handler raises it on one side; `call` raises it again on the other.
    """

    def __init__(self, code: int, remark: str | None = None) -> None:
        super().__init__(f"code {int(code)}: {remark or 'no remark'}")
        self.code = int(code)
        self.remark = remark


class NoRoute(PyroError):
    """No broker has the topic."""

    def __init__(self, topic: str, name_servers: str, reason: str = "") -> None:
        """`reason`: why its route is of no use, if there is one."""
        super().__init__(
            f"no route for topic {topic}: {reason} (name servers {name_servers})"
            if reason
            else f"no route for topic {topic}: no broker registered it with {name_servers}; create it with"
            f" `mqadmin updateTopic -n {name_servers} -c DefaultCluster -t {topic}`, or let the brokers"
            " create topics (autoCreateTopicEnable=true)"
        )
        self.topic = topic


class BadMessage(PyroError):
    """A message that breaks a rule; it was not sent."""


class SendFailed(PyroError):
    """A message was not stored, or nobody said that it was; `attempts` tells what was tried."""

    def __init__(self, what: str, attempts: list[str]) -> None:
        tried = "; ".join(dict.fromkeys(attempts)) or "it was never tried"
        super().__init__(f"{what} was not sent in {len(attempts)} attempts: {tried}")
        self.attempts = attempts


class NoReply(PyroError):
    """A request was sent, and no consumer replied in time."""


class BadExpression(PyroError):
    """A subscription expression that cannot be compiled."""


class StoreError(PyroError):
    """The files on disk are not what they must be, or cannot be used."""


class StateError(PyroError):
    """The object is not in a state that allows this call."""
