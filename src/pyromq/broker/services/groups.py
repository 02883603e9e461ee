"""Consumer groups: operators create, change, list and delete them."""

import logging
import re
from collections.abc import Callable, Mapping

from pyromq.broker.paging import page_of
from pyromq.broker.tables.all_tables import Tables
from pyromq.errors import Refused, StoreError
from pyromq.protocol import lite, names, quotas
from pyromq.protocol.catalogue import Answer, BodyAnswer, RawAnswer
from pyromq.protocol.codes import REPLICA_REMARK, ResponseCode
from pyromq.protocol.requests.groups import (
    CreateOrUpdateGroup,
    CreateOrUpdateGroups,
    DeleteGroup,
    GetAllGroupConfigs,
    GetAllGroupConfigsAnswer,
    GetGroupConfig,
    GetGroupsOfTopic,
    GetSubscriptionOfGroup,
    GetTopicsOfGroup,
    GroupForbidden,
    GroupList,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    UpdateGroupForbidden,
)
from pyromq.protocol.requests.topics import MAX_QUEUES_PER_TOPIC, TopicList, TopicListAnswer
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices

_log = logging.getLogger(__name__)

_PRIORITY_FACTOR = "priority.factor"


class Groups:
    def __init__(
        self,
        tables: Tables,
        on_deleted: Callable[[str], None],
        slices: Slices,
    ) -> None:
        """`on_deleted` is called with each deleted group, so that statistics forget it."""
        self._role = tables.role
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._pop_orders = tables.pop_orders
        self._consumers = tables.consumers
        self._on_deleted = on_deleted
        self._slices = slices

    @handles(CreateOrUpdateGroup)
    async def create_or_update(self, request: CreateOrUpdateGroup, caller: Caller) -> None:
        self._role.require_master()
        await self._update([request.body] if self._is_change(request.body) else [], caller)

    @handles(CreateOrUpdateGroups)
    async def create_or_update_many(self, request: CreateOrUpdateGroups, caller: Caller) -> None:
        """All or none."""
        self._role.require_master()
        changed = [
            config
            async for config in self._slices.spread(request.body.group_config_list)
            if self._is_change(config)
        ]
        await self._update(changed, caller)

    def _is_change(self, config: SubscriptionGroupConfig) -> bool:
        """Check a group and set its attributes; True if it differs from the current one."""
        problem = names.group_problem(config.group_name)
        if problem is None and config.retry_queue_nums > MAX_QUEUES_PER_TOPIC:
            problem = f"{config.retry_queue_nums} retry queues: expected at most {MAX_QUEUES_PER_TOPIC}"
        if problem is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, problem)
        existing = self._groups.get(config.group_name)
        config.attributes = _altered({} if existing is None else existing.attributes, config.attributes)
        return existing != config

    async def _update(self, changed: list[SubscriptionGroupConfig], caller: Caller) -> None:
        self._role.require_master()  # it may have been replaced since the first look at them
        if changed:
            self._groups.update(*changed)
            _log.info(
                "groups updated by=%s count=%d groups=%.500s",
                caller.address,
                len(changed),
                ",".join(each.group_name for each in changed),
            )
        # Even if nothing is new: what is there already may not be on disk yet.
        await self._groups.saved()

    @handles(GetAllGroupConfigs)
    async def get_all(
        self, request: GetAllGroupConfigs, caller: Caller
    ) -> GetAllGroupConfigsAnswer | RawAnswer:
        table = self._groups.snapshot()
        groups = table.subscription_group_table
        if request.max_group_num is None or request.group_seq is None:
            return await written(table, len(groups))
        page = page_of(
            groups, request.group_seq, request.max_group_num, request.data_version, table.data_version
        )
        forbidden = table.forbidden_table
        return GetAllGroupConfigsAnswer(
            total_group_num=len(groups),
            body=SubscriptionGroupWrapper(
                data_version=table.data_version,
                forbidden_table={group: forbidden[group] for group in page if group in forbidden},
                subscription_group_table={group: groups[group] for group in page},
            ),
        )

    @handles(GetGroupConfig)
    def get(self, request: GetGroupConfig, caller: Caller) -> BodyAnswer[SubscriptionGroupConfig]:
        config = self._groups.get(request.group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {request.group} does not exist",
            )
        return BodyAnswer(body=config)

    @handles(DeleteGroup)
    async def delete(self, request: DeleteGroup, caller: Caller) -> Answer | None:
        if not self._role.now.is_master:
            return Answer(remark=REPLICA_REMARK)
        was_known = self._groups.delete(request.group_name)
        if request.clean_offset:
            self._offsets.remove_group(request.group_name)
            self._pop_orders.remove_group(request.group_name)
        self._on_deleted(request.group_name)
        await self._groups.saved()
        if request.clean_offset:
            try:
                await self._offsets.promised(self._slices)
            except (StoreError, OSError) as problem:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {request.group_name} is deleted, but its offsets are on disk: {problem}."
                    " Try again",
                ) from problem
        if was_known:
            _log.info("group deleted by=%s group=%s", caller.address, request.group_name)
        return None

    @handles(UpdateGroupForbidden)
    async def forbid(self, request: UpdateGroupForbidden, caller: Caller) -> BodyAnswer[GroupForbidden]:
        if request.readable is not None:
            self._groups.let_read(request.group, request.topic, allowed=request.readable)
            await self._groups.saved()
        readable = self._groups.may_read(request.group, request.topic)
        return BodyAnswer(body=GroupForbidden(group=request.group, topic=request.topic, readable=readable))

    # Subscriptions

    @handles(GetGroupsOfTopic)
    def groups_of_topic(self, request: GetGroupsOfTopic, caller: Caller) -> BodyAnswer[GroupList]:
        connected = self._consumers.groups_of_topic(request.topic)
        committed = self._offsets.groups_of(request.topic)
        return BodyAnswer(body=GroupList(group_list=sorted({*connected, *committed})))

    @handles(GetTopicsOfGroup)
    def topics_of_group(self, request: GetTopicsOfGroup, caller: Caller) -> TopicListAnswer:
        return TopicListAnswer(body=TopicList(topic_list=sorted(self._offsets.topics_of(request.group))))

    @handles(GetSubscriptionOfGroup)
    def subscription(
        self, request: GetSubscriptionOfGroup, caller: Caller
    ) -> BodyAnswer[QuerySubscriptionResponseBody]:
        found = None
        if request.topic is not None:
            found = self._consumers.subscription(request.group, request.topic)
        return BodyAnswer(
            body=QuerySubscriptionResponseBody(
                group=request.group, topic=request.topic, subscription_data=found
            )
        )


def _altered(attributes: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    """java: a change names attributes as `+name` or `-name`"""
    after = dict(attributes)
    for key, value in change.items():
        if key.startswith("-"):
            after.pop(key[1:], None)
            continue
        name = key.removeprefix("+")
        # Who reads a group and writes it back may send what an older broker kept.
        if attributes.get(name) != value:
            _check_attribute(name, value)
        after[name] = value
    return after


def _check_attribute(name: str, value: str) -> None:
    if name in quotas.OF_GROUPS:
        if quotas.is_rate(value):
            return
        problem = f"attribute {name}={value}: expected {quotas.EXPECTED}"
    elif name in lite.OF_GROUPS:
        is_allowed, expected = lite.OF_GROUPS[name]
        if is_allowed(value):
            return
        problem = f"attribute {name}={value}: expected {expected}"
    elif name != _PRIORITY_FACTOR:
        known = ", ".join((_PRIORITY_FACTOR, *quotas.OF_GROUPS, *lite.OF_GROUPS))
        problem = f"attribute {name!r} is unknown: expected one of {known}"
    elif re.fullmatch(r"\d{1,2}|100", value, re.ASCII) is None:
        problem = f"attribute {name}={value}: expected a whole number from 0 to 100"
    else:
        return
    # java: the code of every attribute that is refused
    raise Refused(ResponseCode.SYSTEM_ERROR, problem)
