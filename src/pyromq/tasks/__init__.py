"""The common part of task frameworks on RocketMQ: a queue is a topic with a group of its own, popped.

`celery`, `taskiq`, `dramatiq` and `django` are built on it. It knows none of them.
"""
