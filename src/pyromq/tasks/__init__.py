"""The common part of task frameworks on RocketMQ: a queue is a topic with its own group, popped.

`celery`, `taskiq`, `dramatiq` and `django` are built on it. It knows none of them.
"""
