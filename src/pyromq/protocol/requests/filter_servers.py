"""Filter servers: programs next to a broker that run filters of consumers on whole messages.

RocketMQ had them up to 4.2, and clients of 4.x still use those that they find in routes.
"""

from pyromq.protocol.catalogue import BROKER, FILTER_SERVER, Answer, Int32, Int64, Request, request, wire
from pyromq.protocol.needs import SUB, UPDATE, cluster, group, topic


class RegisterFilterServerAnswer(Answer):
    broker_name: str
    broker_id: Int64


@request(301, to=BROKER, needs=(cluster(UPDATE),))
class RegisterFilterServer(Request[RegisterFilterServerAnswer]):
    """Say where consumers reach a filter server of this broker; it repeats that every 10 seconds."""

    filter_server_addr: str


@request(302, to=FILTER_SERVER, needs=(group(UPDATE), topic(SUB)), java_name="register_message_filter_class")
class UploadFilter(Request[Answer]):
    """Hand in the source of a group's filter for a topic."""

    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = wire(name="classCRC")
    body: bytes
