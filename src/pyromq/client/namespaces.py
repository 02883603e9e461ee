"""Namespaces: for brokers `orders` is `<namespace>%orders`; retry and dead-letter prefixes stay in front."""

from pyromq.protocol import names

_SEPARATOR = "%"
_REPLY_TOPIC_SUFFIX = names.reply_topic("")


def wrap(name: str, namespace: str | None) -> str:
    """The name of a topic or group that brokers know."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + _SEPARATOR):
        return name
    return f"{prefix}{namespace}{_SEPARATOR}{bare}"


def unwrap(name: str, namespace: str | None) -> str:
    """The name that the application knows; names of other namespaces stay as they are."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    inside = namespace + _SEPARATOR
    return prefix + bare[len(inside) :] if bare.startswith(inside) else name


def _split(name: str) -> tuple[str, str]:
    for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return (
        name in names.SYSTEM_TOPICS
        or name.startswith(names.SYSTEM_TOPIC_PREFIX)
        or names.is_system_group(name)
        or name in names.SYSTEM_GROUPS
        or name.endswith(_REPLY_TOPIC_SUFFIX)
    )
