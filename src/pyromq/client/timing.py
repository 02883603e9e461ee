"""The `delay` and `deliver_at` of a send, as the milliseconds that brokers understand.

A message has one time at most. A `deliver_at` without a time zone is refused: it would mean another moment on
another machine.
"""

from datetime import datetime, timedelta

import msgspec

from pyromq.client.values import Message
from pyromq.errors import BadMessage

_MILLISECOND = timedelta(milliseconds=1)


def timed(message: object, delay: timedelta | None, deliver_at: datetime | None) -> Message:
    """The message with the time that its send gives it."""
    if not isinstance(message, Message):
        raise BadMessage("messages sent together cannot have a delay or deliver_at: send each one alone")
    if delay is not None and deliver_at is not None:
        raise BadMessage(
            f"set only one of delay and deliver_at, not delay={delay} and deliver_at={deliver_at}"
        )
    if message.is_delayed:
        raise BadMessage(
            "the message has a time already: set only one of delay_level, delay_ms and deliver_at_ms of the"
            f" message, and delay and deliver_at of the send, not {given_times(message)} and"
            f" {f'delay={delay}' if deliver_at is None else f'deliver_at={deliver_at}'}"
        )
    if deliver_at is not None:
        return msgspec.structs.replace(message, deliver_at_ms=_moment_ms(deliver_at))
    return msgspec.structs.replace(message, delay_ms=_duration_ms(delay))


def given_times(message: Message) -> str:
    """The times that a message has, for error messages."""
    given = {
        "delay_level": message.delay_level or None,
        "delay_ms": message.delay_ms,
        "deliver_at_ms": message.deliver_at_ms,
    }
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)


def _moment_ms(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime):
        raise BadMessage(f"deliver_at must be a datetime, not {type(deliver_at).__name__} {deliver_at!r}")
    if deliver_at.utcoffset() is None:
        raise BadMessage(
            f"deliver_at={deliver_at} must have a time zone: for local time use deliver_at.astimezone()"
        )
    return round(deliver_at.timestamp() * 1000)


def _duration_ms(delay: object) -> int:
    if not isinstance(delay, timedelta):
        raise BadMessage(
            f"delay must be a timedelta, not {type(delay).__name__} {delay!r}: for seconds use"
            " timedelta(seconds=...)"
        )
    if delay < timedelta(0):
        raise BadMessage(f"delay must not be negative, not {delay}")
    return -(-delay // _MILLISECOND)
