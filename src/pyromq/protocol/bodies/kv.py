"""Key-value tables of texts."""

from pyromq.protocol.bodies.body import Body


class KVTable(Body):
    """Keys and values: a namespace of the name server, or the figures of a broker."""

    table: dict[str, str] = {}


class KVConfigSerializeWrapper(Body):
    """Every namespace of a name server, as in its `kvConfig.json`."""

    config_table: dict[str, dict[str, str]] = {}
