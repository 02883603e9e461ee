"""Filter servers: programs next to a broker that run filters of consumers on whole messages.

RocketMQ had them up to 4.2, and clients of 4.x still use those that they find in routes.
"""

from pyromq.protocol.catalogue import BROKER, Answer, Int64, Request, request
from pyromq.protocol.needs import UPDATE, cluster


class RegisterFilterServerAnswer(Answer):
    broker_name: str
    broker_id: Int64


@request(301, to=BROKER, needs=(cluster(UPDATE),))
class RegisterFilterServer(Request[RegisterFilterServerAnswer]):
    """Say where consumers reach a filter server of this broker; it repeats that every 10 seconds."""

    filter_server_addr: str
