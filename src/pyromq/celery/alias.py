"""Makes kombu know `rocketmq://`. Every process that uses kombu loads it: it imports nothing, never raises.

kombu has no entry points for transports, but loads those of serializers. So this module is one: `msgspec` is
a serializer of JSON, faster than the default one.
"""

from typing import Any

_TRANSPORT = "pyromq.celery.transport:Transport"


def _register() -> None:
    try:
        from kombu.transport import TRANSPORT_ALIASES
    except ImportError:
        return
    TRANSPORT_ALIASES.setdefault("rocketmq", _TRANSPORT)
    TRANSPORT_ALIASES.setdefault("rocketmqs", _TRANSPORT)


def _encode(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _decode(text: Any) -> Any:
    import msgspec

    return msgspec.json.decode(text)


_register()

serializer = (_encode, _decode, "application/x-msgspec-json", "utf-8")
