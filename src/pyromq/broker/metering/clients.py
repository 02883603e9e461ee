"""Connected producers and consumers."""

from collections import Counter as Tally
from collections.abc import Mapping

from pyromq.broker.metering.labels import REMOTING, UNKNOWN, word
from pyromq.broker.tables.all_tables import Tables
from pyromq.metrics import Labels, Metrics
from pyromq.protocol import names
from pyromq.protocol.codes import Language, version_name
from pyromq.protocol.requests.membership import ConsumeType

# java: the values of Apache's label consume_mode
_CONSUME_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}


def register_clients(metrics: Metrics, tables: Tables) -> None:
    metrics.labelled_gauge(
        "rocketmq_producer_connections",
        "Connected producers.",
        lambda: _producers(tables),
        ("language", "version", "protocol_type"),
    )
    metrics.labelled_gauge(
        "rocketmq_consumer_connections",
        "Connected consumers.",
        lambda: _consumers(tables),
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
    )


def _producers(tables: Tables) -> Mapping[Labels, float]:
    return Tally(
        (_language(client.language), _version(client.version), REMOTING)
        for members in tables.producers.groups().values()
        for client in members.values()
    )


def _consumers(tables: Tables) -> Mapping[Labels, float]:
    return Tally(
        (
            group.name,
            _language(client.language),
            _version(client.version),
            _CONSUME_MODES.get(group.consume_type, UNKNOWN) if group.consume_type else UNKNOWN,
            REMOTING,
            word(names.is_system_group(group.name)),
        )
        for group in tables.consumers
        for client in group.members.values()
    )


def _language(language: int) -> str:
    try:
        return Language(language).name.lower()
    except ValueError:
        return str(language)


def _version(version: int) -> str:
    return version_name(version).lower()
