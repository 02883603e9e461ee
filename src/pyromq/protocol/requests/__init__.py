"""The declarations, grouped by noun. Importing this package completes the catalogue."""

from pyromq.protocol.requests import (  # noqa: F401
    access,
    brokers,
    controller,
    groups,
    inspection,
    kv,
    lite,
    membership,
    offsets,
    ordering,
    popping,
    pulling,
    pushes,
    replication,
    routes,
    sending,
    settings,
    topics,
    transactions,
    upkeep,
)
