"""Broker requests that this broker does not serve, each with the reason."""

_POP = "pop consumption is not supported yet"
_ACTING_MASTER = "replicas do not act as master"
_ACCESS = "access control is not supported yet"
_STATIC = "static topics are not supported yet"
_CONTROLLER = "controller mode is not supported"
_CONTAINER = "broker containers are not supported: each broker is its own process"
_ROCKSDB = "the store does not use RocksDB"
_COLD = "reads of old messages are not limited"

UNSERVED = {
    50: _ACCESS,
    51: _ACCESS,
    52: _ACCESS,
    53: _ACCESS,
    354: _ROCKSDB,
    355: _ROCKSDB,
    400: _POP,
    401: _POP,
    402: _POP,
    513: _STATIC,
    902: _CONTAINER,
    903: _CONTAINER,
    905: _ACTING_MASTER,
    906: _ACTING_MASTER,
    908: _ACTING_MASTER,
    1007: _CONTROLLER,
    1008: _CONTROLLER,
    2001: _COLD,
    2002: _COLD,
    2003: _COLD,
    2004: "the operating system decides about read-ahead",
    **dict.fromkeys(range(3001, 3011), _ACCESS),
    200050: _POP,
    200051: _POP,
    200052: _POP,
    200053: _POP,
    200054: _POP,
    200055: _POP,
    200056: _POP,
    200151: _POP,
}

NOT_ON_THE_FAST_PORT = {
    11: "pulls are served on the main port only",
    361: "pulls are served on the main port only",
}
"""java: the second port is for requests that must not wait behind pulls."""
