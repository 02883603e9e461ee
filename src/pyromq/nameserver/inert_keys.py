"""Keys of RocketMQ's name server without effect here; see `config/inert.py`."""

from pyromq.config.inert import inert_keys

_HARMLESS = {
    "one event loop serves every request: there are no thread pools": """
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
unRegisterBrokerQueueCapacity=3000
""",
    "name servers do not talk to each other": """
namesrvAddr=
""",
}

INERT_KEYS = inert_keys(_HARMLESS, {})
