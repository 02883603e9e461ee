"""Consumers: they read the queues assigned to them, deliver messages, and commit offsets.

`push.py` and `pull.py` build on `consumer.py`. Three folders hold its parts: `group` (which queues are ours),
`reading` (pulls, held messages, offsets) and `handling` (handlers and retries).
"""
