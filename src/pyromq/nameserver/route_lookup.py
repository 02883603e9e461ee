"""Answers route queries with bodies that are encoded already.

`watch` in the request asks for a notice, on the same connection, when the route changes; `watch` in the
answer says whether there will be one. Other name servers ignore the field and answer without it.
"""

from pyromq.nameserver.kv_table import ORDER_TOPIC_CONFIG, KvTable
from pyromq.nameserver.readiness import Readiness
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.settings import NameServerSettings
from pyromq.nameserver.watch import Watches
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import V4_9_4, ResponseCode
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles

# java: clients show the hint to their users
_HINT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

_NOT_READY = RawAnswer(code=ResponseCode.SYSTEM_ERROR, remark="name server not ready")


class RouteLookup:
    def __init__(
        self, table: RouteTable, kv: KvTable, readiness: Readiness, watches: Watches[Channel]
    ) -> None:
        self.answers = table.answers
        self._mappings = table.answers.mappings
        self._kv = kv
        self._readiness = readiness
        self._watches = watches
        self._acting_masters = False
        self._with_order = False

    def __repr__(self) -> str:
        return f"<RouteLookup {self.answers!r} {self._watches!r}>"

    @property
    def is_plain(self) -> bool:
        """Whether the kept route of a layout is the whole answer to a query for any of its topics."""
        return not (self._acting_masters or self._with_order or self._mappings) and self._readiness.is_ready

    def apply_settings(self, settings: NameServerSettings) -> None:
        before = self._acting_masters, self._with_order
        self._acting_masters = settings.support_acting_master
        self._with_order = settings.order_message_enable
        if before != (self._acting_masters, self._with_order):
            self._watches.note_everything()

    def order_changed(self, topic: str) -> None:
        """The order configuration of a topic changed."""
        if self._with_order:
            self._watches.note([(topic,)])

    @handles(GetRoute)
    def get_route(self, request: GetRoute, caller: Caller) -> RawAnswer:
        if not self._readiness.is_ready:
            return _NOT_READY
        topic = request.topic
        answer = RawAnswer()
        body = self.find(request, caller, with_order=self._with_order)
        if body is not None:
            answer.body = body
        else:
            answer.code, answer.remark = ResponseCode.TOPIC_NOT_EXIST, no_route_remark(topic)
        if request.watch:
            answer.ext = self.watch(topic, caller)
        return answer

    def find(self, request: GetRoute, caller: Caller, *, with_order: bool) -> bytes | None:
        zone = None
        if request.zone_mode and request.zone_name is not None and request.zone_name.strip():
            zone = request.zone_name
        return self.answers.find(
            request.topic,
            strict=caller.frame.version >= V4_9_4 or request.accept_standard_json_only is True,
            acting_masters=self._acting_masters,
            zone=zone,
            order_configuration=self._kv.get(ORDER_TOPIC_CONFIG, request.topic) if with_order else None,
        )

    def watch(self, topic: str, caller: Caller) -> dict[str, str]:
        is_watched = self._watches.add(topic, caller.channel)
        return {"watch": "true" if is_watched else "false"}


def no_route_remark(topic: str) -> str:
    return f"No topic route info in name server for the topic: {topic}{_HINT}"
