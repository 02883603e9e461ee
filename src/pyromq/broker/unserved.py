"""Requests that are addressed to brokers and that this one does not serve, each with the reason."""

_POP = "popping is not there yet"
_TRANSACTIONS = "transactions are not there yet"
_REPLICATION = "replication is not there yet"
_ACCESS = "access control is not there yet"
_TIMERS = "messages for a given time are not there yet"
_STATIC = "static topics are not there yet"
_CONTROLLER = "there is no controller mode"
_CONTAINER = "a broker is a process of its own here"
_ROCKSDB = "there is no RocksDB here"
_COLD = "reading old messages is not limited here"

UNSERVED = {
    37: _TRANSACTIONS,
    50: _ACCESS,
    51: _ACCESS,
    52: _ACCESS,
    53: _ACCESS,
    60: _TIMERS,
    61: _TIMERS,
    323: _TRANSACTIONS,
    354: _ROCKSDB,
    355: _ROCKSDB,
    370: _TIMERS,
    400: _POP,
    401: _POP,
    402: _POP,
    513: _STATIC,
    902: _CONTAINER,
    903: _CONTAINER,
    905: _REPLICATION,
    906: _REPLICATION,
    907: _REPLICATION,
    908: _REPLICATION,
    1007: _CONTROLLER,
    1008: _CONTROLLER,
    2001: _COLD,
    2002: _COLD,
    2003: _COLD,
    2004: "reading ahead is left to the system",
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
    11: "pulls are served on the main port",
    361: "pulls are served on the main port",
}
"""java: the second port is for requests that must not wait behind pulls."""
