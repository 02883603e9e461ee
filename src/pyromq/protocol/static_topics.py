"""Static topics: which queue of which broker stores which part of a global queue.

A global queue is a list of items, the oldest first. Each is a queue of a broker; the last is the leader's,
and takes new messages. `logic_offset` is where an item begins in the global queue. A queue that moves gets
a new item, which begins some way behind the end of the old one; until that is decided it takes no messages.

Pure: values and functions of values.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pyromq.protocol.requests.topics import (
    GLOBAL_SCOPE,
    MAX_QUEUES_PER_TOPIC,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)

UNDECIDED: Final = -1
ROOM: Final = 10_000
"""A moved queue continues at a multiple of this."""

_MOCK_PREFIX: Final = "__syslo__"
NOWHERE: Final = "__syslo__none__"
"""The broker of a global queue that no broker leads."""


def mock_broker(scope: str) -> str:
    """The broker name that clients see for the global queues of a scope."""
    # java: the global scope loses its leading underscores
    return _MOCK_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


# One item


def is_decided(item: LogicQueueMappingItem) -> bool:
    return item.logic_offset >= 0


def to_logical(item: LogicQueueMappingItem, physical: int) -> int:
    """The offset in the global queue; what lies before the item is its first."""
    return item.logic_offset + max(physical - item.start_offset, 0)


def to_physical(item: LogicQueueMappingItem, logical: int) -> int:
    """The offset in the broker's queue; below `start_offset` if it lies before the item."""
    return logical - item.logic_offset + item.start_offset


def delta(item: LogicQueueMappingItem) -> int:
    return item.logic_offset - item.start_offset


def beginning_after(end: int, room: int = ROOM) -> int:
    """Where a queue continues that ended at `end`: at least half of `room` stays free.

    java: the same places as Apache's tools.
    """
    blocks, rest = divmod(end, room)
    return (blocks + (1 if rest < room // 2 else 2)) * room


# One global queue


def decided(items: Iterable[LogicQueueMappingItem]) -> list[LogicQueueMappingItem]:
    """The items that have a place in the global queue: all but perhaps the last."""
    return [item for item in items if is_decided(item)]


def index_at(items: Sequence[LogicQueueMappingItem], logical: int) -> int:
    """Which of decided items holds an offset; the first if it lies before all of them."""
    return max((at for at, item in enumerate(items) if item.logic_offset <= logical), default=0)


def end_of(items: Sequence[LogicQueueMappingItem], index: int) -> int | None:
    """The physical offset that ends a decided item at the latest; None for the last one."""
    item = items[index]
    ends = [item.end_offset] if item.end_offset > item.start_offset else []
    if index + 1 < len(items):
        ends.append(to_physical(item, items[index + 1].logic_offset))
    return min(ends, default=None)


def queue_problem(items: Sequence[LogicQueueMappingItem]) -> str | None:
    """Why these items cannot be a global queue; None if they can."""
    before: LogicQueueMappingItem | None = None
    places: set[tuple[str | None, int]] = set()
    for item in items:
        if item.bname is None or min(item.gen, item.queue_id, item.start_offset) < 0:
            return (
                f"an item has generation {item.gen}, queue {item.queue_id} of {item.bname},"
                f" start {item.start_offset}"
            )
        if item.end_offset != UNDECIDED and item.end_offset < item.start_offset:
            return f"generation {item.gen} ends at {item.end_offset}, before its start {item.start_offset}"
        if (item.bname, item.queue_id) in places:
            return f"queue {item.queue_id} of {item.bname} is used twice"
        places.add((item.bname, item.queue_id))
        if not is_decided(item) and item is not items[-1]:
            return f"generation {item.gen} has no offset, and is not the last"
        if before is not None:
            if item.gen <= before.gen:
                return f"generation {item.gen} follows {before.gen}"
            end = max(before.end_offset, before.start_offset)
            if is_decided(item) and item.logic_offset <= to_logical(before, end):
                return f"generation {item.gen} begins at {item.logic_offset}, not behind the one before it"
        before = item
    return None


# The mapping of one broker


def leads(detail: TopicQueueMappingDetail, global_id: int) -> LogicQueueMappingItem | None:
    """The item that this broker leads, decided or not; none while its mapping may be older than the truth."""
    if detail.dirty:
        return None
    items = detail.hosted_queues.get(global_id)
    return items[-1] if items and items[-1].bname == detail.bname else None


def led_queues(detail: TopicQueueMappingDetail) -> dict[int, LogicQueueMappingItem]:
    """By global number, the items that this broker leads."""
    found = {number: leads(detail, number) for number in sorted(detail.hosted_queues)}
    return {number: item for number, item in found.items() if item is not None}


def info_of(detail: TopicQueueMappingDetail) -> TopicQueueMappingInfo:
    """The entry for the name server."""
    return TopicQueueMappingInfo(
        topic=detail.topic,
        total_queues=detail.total_queues,
        bname=detail.bname,
        epoch=detail.epoch,
        scope=detail.scope,
        curr_id_map={number: item.queue_id for number, item in led_queues(detail).items()},
    )


def detail_problem(detail: TopicQueueMappingDetail, write_queues: int) -> str | None:
    """Why a broker with `write_queues` cannot have a mapping; None if it can."""
    if not 0 <= detail.total_queues <= MAX_QUEUES_PER_TOPIC:
        return f"{detail.total_queues} queues: expected 0 to {MAX_QUEUES_PER_TOPIC}"
    if detail.dirty:
        return "the mapping is marked as dirty"
    used: dict[int, int] = {}
    for number, items in detail.hosted_queues.items():
        if not 0 <= number < detail.total_queues:
            return f"queue {number}: expected 0 to {detail.total_queues - 1}"
        if not items:
            return f"queue {number} has no items"
        if (problem := queue_problem(items)) is not None:
            return f"queue {number}: {problem}"
        for item in items:
            if item.bname != detail.bname:
                continue
            if item.queue_id >= write_queues:
                return f"queue {number} is stored in queue {item.queue_id} of {write_queues}"
            if used.setdefault(item.queue_id, number) != number:
                return f"queues {used[item.queue_id]} and {number} share queue {item.queue_id}"
    return None


def accepted(
    old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail, *, force: bool = False
) -> TopicQueueMappingDetail:
    """The mapping of a broker after `new` was sent to it; raises ValueError if it must not accept that.

    An epoch never goes back, and within one the leaders do not change. Decisions stay. `force` skips these
    checks. Queues that `new` does not have stay as they were.
    """
    if old is None:
        return new
    kept = {number: items for number, items in old.hosted_queues.items() if number not in new.hosted_queues}
    if force:
        return replace(new, hosted_queues=kept | new.hosted_queues)
    if new.epoch < old.epoch:
        raise ValueError(f"epoch {new.epoch} is older than {old.epoch}")
    if new.scope != old.scope:
        raise ValueError(f"the scope is {old.scope}, not {new.scope}")
    if new.total_queues < old.total_queues:
        raise ValueError(f"{new.total_queues} queues: there are {old.total_queues}, and all of them stay")
    is_same_epoch = new.epoch == old.epoch
    if is_same_epoch and kept:
        raise ValueError(f"epoch {new.epoch} is known, with more queues than now")
    merged = {
        number: _merged(number, old.hosted_queues[number], items, is_same_epoch=is_same_epoch)
        if number in old.hosted_queues
        else items
        for number, items in new.hosted_queues.items()
    }
    return replace(new, hosted_queues=kept | merged)


def _merged(
    number: int,
    old: Sequence[LogicQueueMappingItem],
    new: Sequence[LogicQueueMappingItem],
    *,
    is_same_epoch: bool,
) -> list[LogicQueueMappingItem]:
    known = {item.gen: item for item in old}
    if new[-1].gen < old[-1].gen:
        raise ValueError(f"queue {number}: generation {new[-1].gen} is older than {old[-1].gen}")
    if is_same_epoch and new[-1].gen != old[-1].gen:
        raise ValueError(f"queue {number}: another leader, but the same epoch")
    found = []
    for item in new:
        before = known.get(item.gen)
        if before is not None:
            if _place(item) != _place(before):
                raise ValueError(f"queue {number}: generation {item.gen} was {_place(before)} until now")
            if is_decided(before) and not is_decided(item):
                item = replace(item, logic_offset=before.logic_offset)
            if is_decided(before) and item.logic_offset != before.logic_offset:
                raise ValueError(
                    f"queue {number}: generation {item.gen} begins at {before.logic_offset},"
                    f" not at {item.logic_offset}"
                )
        found.append(item)
    return found


def _place(item: LogicQueueMappingItem) -> tuple[str | None, int, int]:
    return item.bname, item.queue_id, item.start_offset


# The mappings of all brokers


def whole(details: Iterable[TopicQueueMappingDetail]) -> dict[int, list[LogicQueueMappingItem]]:
    """Every global queue, as its leader knows it."""
    found: dict[int, list[LogicQueueMappingItem]] = {}
    for detail in sorted(details, key=lambda each: each.epoch):
        for number in led_queues(detail):
            found[number] = detail.hosted_queues[number]
    return dict(sorted(found.items()))


def whole_problem(details: Mapping[str, TopicQueueMappingDetail]) -> str | None:
    """Why the mappings of brokers, by broker, do not fit together; None if they do."""
    for broker, detail in details.items():
        if detail.bname != broker:
            return f"the mapping on {broker} is one of {detail.bname}"
        if detail.dirty:
            return f"the mapping on {broker} is marked as dirty"
    for what, values in (
        ("epochs", {broker: each.epoch for broker, each in details.items()}),
        ("scopes", {broker: each.scope for broker, each in details.items()}),
        ("numbers of queues", {broker: each.total_queues for broker, each in details.items()}),
    ):
        if len(set(values.values())) > 1:
            return f"the {what} differ: " + ", ".join(
                f"{broker}={values[broker]}" for broker in sorted(values)
            )
    leaders: dict[int, str] = {}
    for broker, detail in details.items():
        for number in led_queues(detail):
            if leaders.setdefault(number, broker) != broker:
                return f"queue {number} is led by {leaders[number]} and by {broker}"
    total = max((each.total_queues for each in details.values()), default=0)
    if missing := set(range(total)) - leaders.keys():
        return f"no broker leads queue {min(missing)}"
    used: dict[tuple[str | None, int], int] = {}
    for number, items in whole(details.values()).items():
        if (problem := queue_problem(items)) is not None:
            return f"queue {number}: {problem}"
        for item in items:
            if used.setdefault((item.bname, item.queue_id), number) != number:
                return f"queue {item.queue_id} of {item.bname} is used twice"
    return None
