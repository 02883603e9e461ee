"""Spark: RocketMQ topics as tables, batch and streaming."""
