"""Routes as bytes, encoded once and kept until one of their brokers or queues changes.

A route body has no topic in it, so it is kept with the layout that many topics share:

    {"brokerDatas":[…],"filterServerTable":{…} ‹order configuration› ,"queueDatas":[…] ‹mappings› }

The two parts in ‹› belong to single topics and are inserted into each answer.
"""

from dataclasses import dataclass
from functools import lru_cache

from pyromq.nameserver.bucket_dict import BucketDict
from pyromq.nameserver.queue_layouts import EncodedRoute, Layout, QueueShape
from pyromq.nameserver.tables import BrokerGroup, BrokerKey, NameServerTables, TopicMappings
from pyromq.protocol import json_body
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.routes import BrokerData

DEFAULT_BUDGET_BYTES = 256 * 1024 * 1024

# java: topics on which broker groups talk to each other name the brokers as they are
_UNCHANGED_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """The form in which a route is encoded. There is one object for each form, so looking one up is fast."""

    is_strict: bool
    has_acting_masters: bool
    zone: str | None = None
    """In lower case; None means all zones, and "" means a zone without brokers."""


PLAIN = _Form(is_strict=False, has_acting_masters=False)
STRICT = _Form(is_strict=True, has_acting_masters=False)
_PLAIN_ACTING = _Form(is_strict=False, has_acting_masters=True)
_STRICT_ACTING = _Form(is_strict=True, has_acting_masters=True)


@lru_cache(1024)
def _of_zone(has_acting_masters: bool, zone: str) -> _Form:
    # java: what was filtered by zone is written in the plain dialect, whatever was asked for
    return _Form(is_strict=False, has_acting_masters=has_acting_masters, zone=zone)


class RouteAnswers:
    """Encoded routes. Beyond the budget all are dropped; the routes in use are encoded again."""

    def __init__(self, tables: NameServerTables, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._tables = tables
        self._queues = tables.queues
        self.mappings = tables.mappings
        """Those topics whose answers contain more than the route of their layout."""
        self._budget_bytes = budget_bytes
        self._kept_bytes = 0
        self.encodings = 0
        """How many routes were encoded."""

    def __repr__(self) -> str:
        return f"<RouteAnswers kept_bytes<={self._kept_bytes} encodings={self.encodings}>"

    @property
    def layouts_of_topics(self) -> BucketDict[Layout]:
        return self._queues.of_topic

    def find(
        self,
        topic: str,
        *,
        strict: bool,
        acting_masters: bool = False,
        zone: str | None = None,
        order_configuration: str | None = None,
    ) -> bytes | None:
        """The body that answers a route request; None if there is no such topic."""
        layout = self._queues.find(topic)
        if layout is None:
            return None
        if acting_masters and not topic.startswith(_UNCHANGED_PREFIX):
            form = _STRICT_ACTING if strict else _PLAIN_ACTING
        else:
            form = STRICT if strict else PLAIN
        if zone is not None:
            form = _of_zone(form.has_acting_masters, self._known_zone(layout, zone))
        encoded = layout.answers.get(form)
        if encoded is None:
            encoded = self._encode(layout, form)
        mappings = self.mappings.get(topic) if self.mappings else None
        if mappings is None and order_configuration is None:
            return encoded.body
        return _with_topic_parts(encoded, form, order_configuration, mappings)

    def _known_zone(self, layout: Layout, zone: str) -> str:
        """A client may ask for any zone; answers are kept for zones that have brokers only."""
        wanted = zone.lower()
        groups = self._tables.groups
        zones = {(groups[name].zone or "").lower() for name in layout.shapes}
        return wanted if wanted in zones else ""

    def _encode(self, layout: Layout, form: _Form) -> EncodedRoute:
        self.encodings += 1
        encode = json_body.encode_strict if form.is_strict else json_body.encode
        brokers: list[bytes] = []
        queues: list[bytes] = []
        filter_servers: dict[str, list[str]] = {}
        for name, shape in layout.shapes.items():
            group = self._tables.groups[name]
            is_acting = (
                form.has_acting_masters
                and group.acting_master
                and not group.has_master
                and not shape.is_writable
            )
            if form.zone is not None and _is_elsewhere(group, is_acting, form.zone):
                continue
            brokers.append(_broker_json(group, is_strict=form.is_strict, is_acting=is_acting))
            queues.append(_queue_json(group, shape, is_strict=form.is_strict))
            if self._tables.filter_servers:
                for address in group.addresses.values():
                    servers = self._tables.filter_servers.get(BrokerKey(group.cluster, address))
                    if servers is not None:
                        filter_servers[address] = servers
        head = b'{"brokerDatas":[%b],"filterServerTable":%b' % (b",".join(brokers), encode(filter_servers))
        body = b'%b,"queueDatas":[%b]}' % (head, b",".join(queues))
        encoded = EncodedRoute(body, len(head))
        self._keep(layout, form, encoded)
        return encoded

    def _keep(self, layout: Layout, form: _Form, encoded: EncodedRoute) -> None:
        self._kept_bytes += len(encoded.body)
        if self._kept_bytes > self._budget_bytes:
            self._queues.forget_all_answers()
            self._kept_bytes = len(encoded.body)
        layout.answers[form] = encoded


def _is_elsewhere(group: BrokerGroup, is_acting: bool, zone: str) -> bool:
    """Whether the group is omitted for this zone; a group without a master is in every zone's route."""
    has_master = group.has_master or is_acting
    return has_master and (not group.zone or group.zone.lower() != zone)


def _broker_json(group: BrokerGroup, *, is_strict: bool, is_acting: bool) -> bytes:
    known = group.encoded.get((is_strict, is_acting))
    if known is None:
        addresses = dict(sorted(group.addresses.items()))
        if is_acting:
            addresses = {MASTER_ID: addresses.pop(min(addresses)), **addresses}
        data = broker_data(group, addresses)
        known = json_body.encode_strict(data) if is_strict else json_body.encode(data)
        group.encoded[is_strict, is_acting] = known
    return known


def broker_data(group: BrokerGroup, addresses: dict[int, str]) -> BrokerData:
    return BrokerData(
        broker_addrs=addresses,
        broker_name=group.name,
        cluster=group.cluster,
        enable_acting_master=group.acting_master,
        zone_name=group.zone,
    )


def _queue_json(group: BrokerGroup, shape: QueueShape, *, is_strict: bool) -> bytes:
    name = group.encoded.get(is_strict)
    if name is None:
        name = json_body.encode_strict(group.name) if is_strict else json_body.encode(group.name)
        group.encoded[is_strict] = name
    return b'{"brokerName":%b,"perm":%d,"readQueueNums":%d,"topicSysFlag":%d,"writeQueueNums":%d}' % (
        name,
        shape.perm,
        shape.read_queues,
        shape.sys_flag,
        shape.write_queues,
    )


def _with_topic_parts(
    encoded: EncodedRoute, form: _Form, order_configuration: str | None, mappings: TopicMappings | None
) -> bytes:
    body, at = encoded
    encode = json_body.encode_strict if form.is_strict else json_body.encode
    ordering = mapping = b""
    if order_configuration is not None:
        ordering = b',"orderTopicConf":' + encode(order_configuration)
    if mappings is not None:
        if form.is_strict not in mappings.encoded:
            mappings.encoded[form.is_strict] = encode(mappings.by_broker)
        mapping = b',"topicQueueMappingByBroker":' + mappings.encoded[form.is_strict]
    return b"".join((body[:at], ordering, body[at:-1], mapping, b"}"))
