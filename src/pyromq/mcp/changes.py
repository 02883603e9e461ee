"""The tools that change something, in two steps. A plan changes nothing: it says what would change.

Its token is good for exactly that, once, for five minutes. What cannot be written into the audit log does not
happen. Nothing here deletes.
"""

from collections.abc import Awaitable, Callable
from secrets import token_urlsafe
from typing import Any, NamedTuple

from msgspec.structs import replace

from pyromq.admin import brokers, browsing, dead_letters, messages, resets, topics
from pyromq.errors import ConfigError, PyroError, StateError
from pyromq.mcp.desk import Desk, plain
from pyromq.protocol import names
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, TopicConfig

LASTS_S = 300.0
_MAX_PLANS = 100
_MAX_RESENT = 100


class Plan(NamedTuple):
    what: str
    cluster: str
    reason: str
    fields: dict[str, Any]
    before: Any
    perform: Callable[[], Awaitable[Any]]
    until: float


class ChangingTools:
    """Each public method is a tool; its docstring is what an assistant reads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._plans: dict[str, Plan] = {}

    async def plan_topic(
        self, topic: str, queues: int, reason: str, message_type: str = "", cluster: str = ""
    ) -> dict[str, Any]:
        """Preview: create a topic on all masters, or change its number of queues. Needs `apply`.

        An existing topic keeps everything else. A new one is of type NORMAL without `message_type`.
        """
        asked = self._desk.cluster(cluster)
        if not 1 <= queues <= 128:
            raise ConfigError("queues", queues, "1 to 128")
        found = {
            each: (await topics.configs(asked, each.address)).get(topic) for each in await asked.masters()
        }
        known = next(filter(None, found.values()), None)
        fields: dict[str, Any] = {"topic": topic, "queues": queues}
        if message_type or known is None:
            fields["message_type"] = message_type or "NORMAL"
        requests = {}
        for master, config in found.items():
            shown = config or known or TopicConfig(topic_name=topic)
            attributes = {} if config else dict(shown.attributes)
            if "message_type" in fields:
                attributes["message.type"] = fields["message_type"]
            requests[master.address] = CreateOrUpdateTopic.of(
                replace(shown, read_queue_nums=queues, write_queue_nums=queues),
                attributes=",".join(f"+{name}={value}" for name, value in attributes.items()) or None,
            )

        async def perform() -> Any:
            await asked.ask_all(requests)
            return {"brokers": [each.broker_name for each in found]}

        before = {each.broker_name: plain(config) for each, config in found.items() if config}
        return self._planned("plan_topic", cluster, reason, fields, before or None, perform)

    async def plan_reset_offsets(
        self, group: str, topic: str, reason: str, to_time_ms: int | None = None, cluster: str = ""
    ) -> dict[str, Any]:
        """Preview: let a group continue at a time, or without one after the last message. Needs `apply`."""
        asked = self._desk.cluster(cluster)
        moves = await resets.moves(asked, group, topic, time_ms=to_time_ms)

        async def perform() -> Any:
            return plain(await resets.perform(asked, group, moves))

        fields = {"group": group, "topic": topic, "to_time_ms": to_time_ms}
        return self._planned("plan_reset_offsets", cluster, reason, fields, plain(moves), perform)

    async def plan_resend_dead_letters(
        self, group: str, reason: str, limit: int = 10, to_group: bool = True, cluster: str = ""
    ) -> dict[str, Any]:
        """Preview: send the newest dead letters again, to the group or to their topic. Needs `apply`."""
        asked = self._desk.cluster(cluster)
        if not 1 <= limit <= _MAX_RESENT:
            raise ConfigError("limit", limit, f"1 to {_MAX_RESENT}")
        wanted = browsing.Wanted(limits=browsing.Limits(rows=limit))
        found = [each.message for each in (await browsing.look(asked, names.dlq_topic(group), wanted)).found]

        async def perform() -> Any:
            sent = [await dead_letters.resend(asked, group, each, to_group=to_group) for each in found]
            return {"sent": [each.message_id for each in sent]}

        fields = {"group": group, "letters": len(found), "to_group": to_group}
        before = [self._desk.message(each) for each in found]
        return self._planned("plan_resend_dead_letters", cluster, reason, fields, before, perform)

    async def plan_test_message(
        self, topic: str, body: str, reason: str, tag: str = "", key: str = "", cluster: str = ""
    ) -> dict[str, Any]:
        """Preview: send one message to a topic. Needs `apply`."""
        asked = self._desk.cluster(cluster)
        await asked.route(topic)

        async def perform() -> Any:
            sent = await messages.send(asked, topic, body.encode(), tags=tag or None, keys=key or None)
            return plain(sent)

        fields = {"topic": topic, "bytes": len(body.encode()), "tag": tag, "key": key}
        return self._planned("plan_test_message", cluster, reason, fields, None, perform)

    async def plan_broker_config(
        self, broker_name: str, key: str, value: str, reason: str, cluster: str = ""
    ) -> dict[str, Any]:
        """Preview: change a setting of a broker's master that this server may change. Needs `apply`."""
        allowed = self._desk.settings.config_keys
        if key not in allowed:
            raise ConfigError("key", key, f"one of {', '.join(sorted(allowed)) or 'none'} (--config-key)")
        asked = self._desk.cluster(cluster)
        address = await asked.broker_address(broker_name)
        before = (await brokers.config(asked, address)).get(key)

        async def perform() -> Any:
            return await brokers.update_config(asked, [address], key, value)

        fields = {"broker_name": broker_name, "key": key, "value": value}
        return self._planned("plan_broker_config", cluster, reason, fields, before, perform)

    async def apply(self, token: str) -> dict[str, Any]:
        """Do what a preview showed, once. Ask the person you work for before you call it."""
        plan = self._plans.pop(token, None)
        if plan is None or plan.until < self._desk.clock.monotonic():
            raise StateError("the token is unknown, used or older than five minutes: make a new preview")
        fields = {**plan.fields, "reason": plan.reason}
        entry = await self._desk.audit(plan.what, plan.cluster, fields, before=plan.before)
        try:
            done = await plan.perform()
        except PyroError as problem:
            await self._desk.audit(plan.what, plan.cluster, fields, id=entry, outcome=str(problem))
            raise
        await self._desk.audit(plan.what, plan.cluster, fields, id=entry, outcome="ok")
        return {"done": plan.what, "result": plain(done), "audit_id": entry}

    def _planned(
        self,
        what: str,
        cluster: str,
        reason: str,
        fields: dict[str, Any],
        before: Any,
        perform: Callable[[], Awaitable[Any]],
    ) -> dict[str, Any]:
        if not reason.strip():
            raise ConfigError("reason", reason, "why this is to be done, for the audit log")
        while len(self._plans) >= _MAX_PLANS:
            self._plans.pop(next(iter(self._plans)))
        token = token_urlsafe(16)
        until = self._desk.clock.monotonic() + LASTS_S
        self._plans[token] = Plan(what, cluster, reason, fields, before, perform, until)
        return {"would_do": fields, "before": before, "token": token, "valid_s": LASTS_S}
