"""The errors of PyroMQ.

The lowest layer that catches an error of another library translates it into one of these.
"""


class PyroError(Exception):
    """Anything PyroMQ raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # A process pool that cannot unpickle a worker's error waits for ever.
        return _revived, (type(self), self.args, self.__dict__)


def _revived(kind: type[PyroError], args: tuple[object, ...], state: dict[str, object]) -> PyroError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(PyroError):
    """A setting has an invalid value."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        super().__init__(f"{key}={value!s}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


class ProtocolError(PyroError):
    """Bytes or values that violate the wire protocol."""


class LocalProtocolError(ProtocolError):
    """This side tried to send something that the protocol cannot represent: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol; its connection should be closed."""


class TransportError(PyroError):
    """The network failed; a retry, perhaps with another server, may help."""


class ConnectFailed(TransportError):
    """No connection could be opened."""


class ConnectionLost(TransportError):
    """The connection closed while a call was waiting."""


class CallTimeout(TransportError):
    """No answer arrived before the deadline."""


class Refused(PyroError):
    """The peer refused the request.

    A handler raises it on one side; `call` raises it again on the other.
    """

    def __init__(self, code: int, remark: str | None = None, server: str = "") -> None:
        """`server`: the address of the peer, where it is known."""
        at = f"{server}: " if server else ""
        super().__init__(f"{at}code {int(code)}: {remark or 'no remark'}")
        self.code = int(code)
        self.remark = remark
        self.server = server


class NoRoute(PyroError):
    """No broker has the topic."""

    def __init__(self, topic: str, name_servers: str, reason: str = "") -> None:
        """`reason`: why its route cannot be used, if there is one."""
        super().__init__(
            f"no route for topic {topic}: {reason} (name servers {name_servers})"
            if reason
            else f"no route for topic {topic}: no broker registered it with {name_servers}; create it with"
            f" `mqadmin updateTopic -n '{name_servers}' -c CLUSTER -t {topic}`, or let the brokers"
            " create topics (autoCreateTopicEnable=true)"
        )
        self.topic = topic


class BadMessage(PyroError):
    """The message is invalid; it was not sent."""


class BadBody(PyroError):
    """The body of a received message cannot be decoded as the type that was asked for."""


class SendFailed(PyroError):
    """A message was not stored, or no broker confirmed it; `attempts` has the error of each attempt."""

    def __init__(self, what: str, attempts: list[str], last: PyroError | None = None) -> None:
        """`last`: the error of the last attempt."""
        tried = "; ".join(dict.fromkeys(attempts)) or "no attempt was made"
        super().__init__(f"{what} was not sent in {len(attempts)} attempts: {tried}")
        self.attempts = attempts
        self.last = last


class NoReply(PyroError):
    """A request was sent, and no consumer replied in time."""


class RequestFailed(PyroError):
    """A consumer replied to a request with an error; `kind` is its type, as in "ValueError"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"the consumer failed: {kind}: {text}" if text else f"the consumer failed: {kind}")
        self.kind = kind
        self.text = text


class AskerGone(PyroError):
    """A reply could not be delivered: the client that asked has left, or waits no more.

    A handler that raises it has handled its message: another try could not be delivered either.
    """


class BadExpression(PyroError):
    """The subscription expression cannot be compiled."""


class StoreError(PyroError):
    """The files on disk are damaged or cannot be used."""


class StateError(PyroError):
    """The object is in a state that does not allow this call."""
