"""Labels of a broker's metrics, and the words in them."""

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.topics import TopicTable
from pyromq.protocol import names

REMOTING = "remoting"
UNKNOWN = "unknown"
STORAGE = ("storage_type", "storage_medium")
THIS_STORAGE = ("local", "disk")


def common_labels(settings: BrokerSettings) -> dict[str, str]:
    """java: the broker's own labels win over those of the settings."""
    return dict(settings.metric_labels) | {
        "cluster": settings.broker_cluster_name,
        "node_type": "broker",
        "node_id": settings.broker_name,
    }


def word(is_true: bool) -> str:
    return "true" if is_true else "false"


def is_system(topics: TopicTable, topic: str, group: str) -> str:
    return word(topics.is_system(topic) or names.is_system_group(group))
