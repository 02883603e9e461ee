"""Consumers: what a member of a group reads, hands out, and reports as done.

`push.py` and `pull.py` build on `consumer.py`. Three folders hold its parts: `group` (which queues are ours),
`reading` (pulls, held messages, offsets) and `handling` (handlers and retries).
"""
