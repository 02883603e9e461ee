"""Static topics: how many queues there are, and which broker leads each.

A plan is worked out from what all brokers say, then carried out. The order of the steps keeps messages and
their order: the old leader of a queue gives it up, then its end is read, and only then does the new one
begin, behind that end. Between these steps no broker accepts messages for the queue. A plan that was
interrupted can be carried out again, as often as needed, with the same result.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.failures import BadPlan, NotFound
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.protocol.requests.topics import (
    CreateStaticTopic,
    GetTopicConfig,
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicRemappingDetailWrapper,
)
from pyromq.protocol.static_topics import (
    UNDECIDED,
    beginning_after,
    is_decided,
    to_logical,
    whole,
    whole_problem,
)

CREATE, MOVE = "CREATE_OR_UPDATE", "REMAPPING"
_EPOCH_STEP: Final = 1000

Holders = Mapping[str, TopicConfigAndQueueMapping]


async def holders(cluster: Cluster, topic: str) -> dict[str, TopicConfigAndQueueMapping]:
    """The topic on each master that has it, by broker name."""
    found = {}
    for member in await cluster.masters():
        question = GetTopicConfig(topic=topic, is_logical_queue=True)
        answer = await cluster.ask_unless(ResponseCode.TOPIC_NOT_EXIST, member.address, question)
        if answer is not None:
            found[member.broker_name] = answer.body
    return found


def before(topic: str, known: Holders) -> TopicRemappingDetailWrapper:
    """The present state, in the form of a plan."""
    epoch = max((each.epoch for each in _details(known).values()), default=0)
    return TopicRemappingDetailWrapper(topic=topic, type=CREATE, epoch=epoch, broker_config_map=dict(known))


def grown(
    topic: str, total: int, targets: Collection[str], known: Holders, now_ms: int
) -> TopicRemappingDetailWrapper:
    """The topic with `total` queues: new ones go where there are fewest, the others stay."""
    queues = _checked(topic, known)
    if total <= len(queues):
        raise BadPlan(f"the topic {topic} has {len(queues)} queues: expected a larger number than that")
    load = dict.fromkeys(sorted({*targets, *(name for name, each in known.items() if _is_used(each))}), 0)
    for items in queues.values():
        load[items[-1].bname or ""] = load.get(items[-1].bname or "", 0) + 1
    plan = {name: _copied(topic, name, each) for name, each in known.items()}
    for number in range(len(queues), total):
        broker = min(load, key=lambda name: (load[name], name))
        load[broker] += 1
        item = _new_item(plan, topic, broker, generation=0, logic_offset=0)
        _detail(plan[broker]).hosted_queues[number] = [item]
    return _finished(topic, CREATE, plan, total, known, now_ms)


def moved(topic: str, targets: Collection[str], known: Holders, now_ms: int) -> TopicRemappingDetailWrapper:
    """The topic with all its queues led by `targets`, evenly, with as few moves as possible."""
    queues = _checked(topic, known)
    if not queues:
        raise BadPlan(f"there is no static topic {topic}; `mqadmin updateStaticTopic` creates one")
    load = {
        name: [number for number, items in queues.items() if items[-1].bname == name]
        for name in sorted(targets)
    }
    least, more = divmod(len(queues), len(load))
    # Those that lead most keep one more each.
    by_load = sorted(load, key=lambda name: (-len(load[name]), name))
    share = {name: least + (at < more) for at, name in enumerate(by_load)}
    leaving = [number for number, items in queues.items() if items[-1].bname not in load]
    leaving += [number for name in load for number in load[name][share[name] :]]
    plan = {name: _copied(topic, name, each) for name, each in known.items()}
    arriving, departing = set(), set()
    for name in load:
        for _ in range(share[name] - len(load[name])):
            number = leaving.pop(0)
            last = queues[number][-1]
            item = _new_item(plan, topic, name, generation=last.gen + 1, logic_offset=UNDECIDED)
            items = [*queues[number], item]
            _detail(plan[name]).hosted_queues[number] = items
            _detail(plan[last.bname or ""]).hosted_queues[number] = items
            arriving.add(name)
            departing.add(last.bname or "")
    if not arriving:
        raise BadPlan(f"the brokers {', '.join(sorted(targets))} lead all queues of {topic} already")
    finished = _finished(topic, MOVE, plan, len(queues), known, now_ms)
    return replace(finished, broker_to_map_in=arriving, broker_to_map_out=departing)


def verified(plan: TopicRemappingDetailWrapper, topic: str) -> TopicRemappingDetailWrapper:
    """A plan from a file; raises BadPlan."""
    if plan.topic != topic or not plan.broker_config_map:
        raise BadPlan(f"the file has a plan for {plan.topic}: expected one for {topic}")
    _checked(topic, plan.broker_config_map)
    return plan


async def carry_out(cluster: Cluster, plan: TopicRemappingDetailWrapper, *, force: bool = False) -> None:
    """Send the brokers their mappings. Brokers of the same clusters that have no queue of the topic learn
    that it is static, so that no send creates it there."""
    topic = plan.topic or ""
    configs = dict(plan.broker_config_map)
    addresses = await _addresses(cluster, configs)
    sample = _detail(next(iter(configs.values())))
    for name in addresses:
        if name not in configs:
            configs[name] = _empty(topic, name, sample.total_queues, plan.epoch)

    async def tell(broker: str) -> None:
        await cluster.change(addresses[broker], _request(configs[broker], force=force))

    for broker in sorted(plan.broker_to_map_out):
        await tell(broker)
    ends: dict[int, int] = {}
    for number, items in whole(_details(configs).values()).items():
        if not is_decided(items[-1]) and len(items) > 1:
            old = items[-2]
            question = GetMaxOffset(topic=topic, queue_id=old.queue_id, is_logical_queue=False)
            answer = await cluster.ask(addresses[old.bname or ""], question)
            ends[number] = beginning_after(to_logical(old, answer.offset))
    for name, config in configs.items():
        configs[name] = _with_beginnings(config, ends)
    arriving = sorted(plan.broker_to_map_in)
    for broker in [*arriving, *(name for name in sorted(configs) if name not in arriving)]:
        await tell(broker)


async def _addresses(cluster: Cluster, configs: Holders) -> dict[str, str]:
    """The masters of all clusters that have these brokers."""
    info = await cluster.info()
    masters = [member for member in members_of(info) if member.is_master]
    clusters = {member.cluster for member in masters if member.broker_name in configs}
    found = {member.broker_name: member.address for member in masters if member.cluster in clusters}
    if missing := sorted(configs.keys() - found.keys()):
        raise NotFound(f"no name server knows the master of {', '.join(missing)}")
    return found


def _request(config: TopicConfigAndQueueMapping, *, force: bool) -> CreateStaticTopic:
    return CreateStaticTopic.of(config, force=force, body=_detail(config))


def _with_beginnings(
    config: TopicConfigAndQueueMapping, beginnings: Mapping[int, int]
) -> TopicConfigAndQueueMapping:
    detail = _detail(config)
    hosted = {
        number: [*items[:-1], replace(items[-1], logic_offset=beginnings[number])]
        if number in beginnings and not is_decided(items[-1])
        else items
        for number, items in detail.hosted_queues.items()
    }
    return replace(config, mapping_detail=replace(detail, hosted_queues=hosted))


def _details(known: Holders) -> dict[str, TopicQueueMappingDetail]:
    return {name: each.mapping_detail for name, each in known.items() if each.mapping_detail is not None}


def _detail(config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    assert config.mapping_detail is not None
    return config.mapping_detail


def _is_used(config: TopicConfigAndQueueMapping) -> bool:
    return config.mapping_detail is not None and bool(config.mapping_detail.hosted_queues)


def _checked(topic: str, known: Holders) -> dict[int, list[LogicQueueMappingItem]]:
    """Every queue; raises BadPlan if the brokers do not agree."""
    ordinary = [name for name, each in known.items() if each.mapping_detail is None]
    if ordinary:
        raise BadPlan(f"the topic {topic} on {', '.join(sorted(ordinary))} is not static")
    if (problem := whole_problem(_details(known))) is not None:
        raise BadPlan(
            f"the brokers do not agree on the static topic {topic}: {problem}. If a change was interrupted,"
            " repeat it with -mf and its `.after` file"
        )
    return whole(_details(known).values())


def _copied(topic: str, broker: str, config: TopicConfigAndQueueMapping) -> TopicConfigAndQueueMapping:
    detail = _detail(config)
    hosted = {number: list(items) for number, items in detail.hosted_queues.items()}
    return replace(config, mapping_detail=replace(detail, hosted_queues=hosted))


def _empty(topic: str, broker: str, total: int, epoch: int) -> TopicConfigAndQueueMapping:
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(topic=topic, bname=broker, total_queues=total, epoch=epoch),
    )


def _new_item(
    plan: dict[str, TopicConfigAndQueueMapping],
    topic: str,
    broker: str,
    *,
    generation: int,
    logic_offset: int,
) -> LogicQueueMappingItem:
    """The next queue of a broker: none is used a second time."""
    config = plan.setdefault(broker, _empty(topic, broker, 0, 0))
    config.write_queue_nums += 1
    config.read_queue_nums = max(config.read_queue_nums, config.write_queue_nums)
    return LogicQueueMappingItem(
        gen=generation, queue_id=config.write_queue_nums - 1, bname=broker, logic_offset=logic_offset
    )


def _finished(
    topic: str,
    kind: str,
    plan: dict[str, TopicConfigAndQueueMapping],
    total: int,
    known: Holders,
    now_ms: int,
) -> TopicRemappingDetailWrapper:
    last = max((each.epoch for each in _details(known).values()), default=0)
    epoch = max(last + _EPOCH_STEP, now_ms)
    for name, config in plan.items():
        detail = replace(_detail(config), epoch=epoch, total_queues=total, dirty=False)
        plan[name] = replace(config, mapping_detail=detail)
    _checked(topic, plan)
    return TopicRemappingDetailWrapper(topic=topic, type=kind, epoch=epoch, broker_config_map=plan)
