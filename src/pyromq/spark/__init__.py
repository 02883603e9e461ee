"""Spark: RocketMQ topics as tables, batch and streaming. `from pyromq.spark import session`."""

from pyromq.spark.session import session

__all__ = ["session"]
