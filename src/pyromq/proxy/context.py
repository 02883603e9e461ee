"""The context: one value with everything that most parts of the front are built from."""

from dataclasses import dataclass

from pyromq.clock import Clock
from pyromq.proxy.clients import Clients
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import ProxyTopics


@dataclass(frozen=True, slots=True, eq=False)
class FrontContext:
    cluster: ProxyCluster
    topics: ProxyTopics
    clients: Clients
    clock: Clock
    settings: ProxySettings
