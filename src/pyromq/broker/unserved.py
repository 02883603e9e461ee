"""Broker requests that this broker does not serve, each with the reason."""

_BY_REASON = {
    "broker containers are not supported: each broker is its own process": (902, 903),
    "the store does not use RocksDB": (354, 355),
    "reads of old messages are not limited": (2001, 2002, 2003),
}

WITHOUT_CONTROLLER = dict.fromkeys(
    (1008, 30908), "enableControllerMode is false: no controller gives this broker its role"
)

UNSERVED = {code: reason for reason, codes in _BY_REASON.items() for code in codes}

NOT_ON_THE_FAST_PORT = dict.fromkeys(
    (11, 361, 200050, 200052, 200054, 200055, 200070), "pulls and pops are served on the main port only"
)
"""java: the second port is for requests that must not wait behind pulls."""
