"""Lets Spark find `format("rocketmq")` without registration."""

from pyromq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
