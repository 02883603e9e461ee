"""Dramatiq on RocketMQ: `dramatiq.set_broker(DramatiqBroker("127.0.0.1:9876"))`.

Needs `pyromq[dramatiq]`. `docs/howto/dramatiq.md` says what can be set and what differs from other brokers.
"""

from pyromq.dramatiq.broker import DramatiqBroker

__all__ = ["DramatiqBroker"]
