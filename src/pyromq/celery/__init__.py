"""Celery on RocketMQ: `broker_url="rocketmq://key:secret@ns1:9876,ns2:9876/namespace"`, without an import.

Needs `pyromq[celery]`. `docs/howto/celery.md` says what can be set and what differs from other brokers.
"""
