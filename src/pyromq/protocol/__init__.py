"""RocketMQ's wire protocol: bytes in, values out; no socket, no clock, no log."""
