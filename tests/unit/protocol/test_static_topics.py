"""The arithmetic of static topics, and which changes of a mapping are accepted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.chance import examples

from pyromq.protocol.requests.topics import LogicQueueMappingItem, TopicQueueMappingDetail
from pyromq.protocol.static_topics import (
    ROOM,
    UNDECIDED,
    accepted,
    beginning_after,
    decided,
    detail_problem,
    end_of,
    index_at,
    info_of,
    mock_broker,
    queue_problem,
    to_logical,
    to_physical,
    whole,
    whole_problem,
)

Item = LogicQueueMappingItem


def item(gen: int, broker: str = "a", queue_id: int = 0, at: int = 0, **more: int) -> Item:
    return Item(gen=gen, bname=broker, queue_id=queue_id, logic_offset=at, **more)


def detail(broker: str, epoch: int = 1, total: int = 1, **hosted: list[Item]) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        topic="t",
        bname=broker,
        epoch=epoch,
        total_queues=total,
        hosted_queues={int(name[1:]): items for name, items in hosted.items()},
    )


@st.composite
def moved_queues(draw: st.DrawFn) -> tuple[list[Item], list[int]]:
    """A queue that has moved some times, and how many messages each part has."""
    lengths = draw(st.lists(st.integers(0, 3 * ROOM), min_size=1, max_size=6))
    items: list[Item] = []
    begin = 0
    for gen, length in enumerate(lengths):
        items.append(item(gen, f"broker-{draw(st.integers(0, 2))}", gen, begin))
        begin = beginning_after(to_logical(items[-1], length))
    return items, lengths


@settings(max_examples=examples(200))
@given(moved_queues(), st.data())
def test_every_message_has_one_place_and_is_found_there(
    queue: tuple[list[Item], list[int]], data: st.DataObject
) -> None:
    items, lengths = queue
    assert queue_problem(items) is None
    last = -1
    for index, (each, length) in enumerate(zip(items, lengths, strict=True)):
        for physical in {0, length // 2, length - 1} & set(range(length)):
            logical = to_logical(each, physical)
            assert logical > last or physical == 0
            assert items[index_at(items, logical)] == each
            assert to_physical(each, logical) == physical
            end = end_of(items, index)
            assert end is None or physical < end
        last = to_logical(each, length)
    # Whoever stands between two parts is still in the earlier one, and goes on with the next.
    offset = data.draw(st.integers(0, last + ROOM))
    index = index_at(items, offset)
    assert items[index].logic_offset <= offset
    assert index + 1 == len(items) or offset < items[index + 1].logic_offset


@settings(max_examples=examples(200))
@given(st.integers(0, 2**40))
def test_a_moved_queue_leaves_room_behind_its_end(end: int) -> None:
    begin = beginning_after(end)
    assert begin % ROOM == 0
    assert ROOM // 2 < begin - end <= 3 * ROOM // 2 + 1


@pytest.mark.parametrize(
    ("end", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (10_000, 20_000), (15_000, 30_000)]
)
def test_a_moved_queue_begins_where_apaches_tools_let_it(end: int, begin: int) -> None:
    assert beginning_after(end) == begin


def test_the_mock_broker_is_named_as_java_clients_name_it() -> None:
    assert mock_broker("__global__") == "__syslo__global__"
    assert mock_broker("mine") == "__syslo__mine"


def test_an_item_without_a_place_holds_no_offset() -> None:
    items = [item(0), item(1, "b", at=UNDECIDED)]
    assert decided(items) == items[:1]
    assert info_of(detail("b", q0=items)).curr_id_map == {0: 0}
    assert info_of(detail("a", q0=items)).curr_id_map == {}


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([item(-1)], "generation -1"),
        ([item(0), item(0, "b", at=10)], "generation 0 follows 0"),
        ([item(0, at=10), item(1, "b", at=10)], "begins at 10, not behind"),
        ([item(0, end_offset=20), item(1, "b", at=20)], "begins at 20, not behind"),
        ([item(0, at=UNDECIDED), item(1, "b", at=5)], "has no offset, and is not the last"),
        ([item(0), item(1, at=50)], "queue 0 of a is used twice"),
        ([item(0, start_offset=5, end_offset=3)], "before its start 5"),
    ],
)
def test_items_that_cannot_be_a_queue_are_told(items: list[Item], problem: str) -> None:
    assert problem in (queue_problem(items) or "")


def test_a_mapping_is_checked_against_the_queues_of_its_broker() -> None:
    good = detail("a", total=2, q0=[item(0)], q1=[item(0, queue_id=1)])
    assert detail_problem(good, 2) is None
    assert "queue 1 of 1" in (detail_problem(good, 1) or "")
    shared = detail("a", total=2, q0=[item(0)], q1=[item(0)])
    assert "share queue 0" in (detail_problem(shared, 2) or "")
    assert "expected 0 to 0" in (detail_problem(replace(good, total_queues=1), 2) or "")
    assert "dirty" in (detail_problem(replace(good, dirty=True), 2) or "")
    assert "no items" in (detail_problem(detail("a", q0=[]), 2) or "")


def test_a_later_epoch_may_move_a_queue_and_decide_its_place_once() -> None:
    old = detail("a", 1, q0=[item(0)])
    moving = detail("a", 2, q0=[item(0), item(1, "b", at=UNDECIDED)])
    done = detail("a", 2, q0=[item(0), item(1, "b", at=ROOM)])
    assert accepted(None, old) == old
    assert accepted(old, moving) == moving
    assert accepted(moving, done) == done
    assert accepted(done, moving) == done, "a step that is repeated takes nothing back"
    with pytest.raises(ValueError, match=f"begins at {ROOM}, not at 7"):
        accepted(done, detail("a", 2, q0=[item(0), item(1, "b", at=7)]))


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        (detail("a", 4, q0=[item(0), item(1, "b", at=ROOM)]), "epoch 4 is older than 5"),
        (detail("a", 5, q0=[item(0), item(1, "b", at=ROOM), item(2, "c")]), "another leader"),
        (detail("a", 6, q0=[item(0)]), "generation 0 is older than 1"),
        (detail("a", 6, q0=[item(0), item(1, "c", at=ROOM)]), r"generation 1 was \('b', 0, 0\)"),
        (detail("a", 6, total=0), "all of them stay"),
        (detail("a", 5), "with more queues than now"),
        (replace(detail("a", 6), scope="other"), "the scope is __global__"),
    ],
)
def test_what_would_take_something_back_is_refused(new: TopicQueueMappingDetail, problem: str) -> None:
    old = detail("a", 5, q0=[item(0), item(1, "b", at=ROOM)])
    with pytest.raises(ValueError, match=problem):
        accepted(old, new)
    assert accepted(old, new, force=True).epoch == new.epoch


def test_queues_that_a_change_does_not_name_stay() -> None:
    old = detail("a", 5, total=2, q0=[item(0)], q1=[item(0, queue_id=1)])
    assert accepted(old, detail("a", 6, total=2, q0=[item(0)])).hosted_queues == old.hosted_queues


def test_the_mappings_of_all_brokers_must_fit_together() -> None:
    moved = [item(0), item(1, "b", at=ROOM)]
    a = detail("a", total=2, q0=moved, q1=[item(0, queue_id=1)])
    b = detail("b", total=2, q0=moved)
    assert whole_problem({"a": a, "b": b}) is None
    assert whole([a, b]) == {0: moved, 1: [item(0, queue_id=1)]}
    for broken, problem in (
        ({"a": a}, "no broker leads queue 0"),
        ({"a": a, "b": replace(b, epoch=9)}, "the epochs differ: a=1, b=9"),
        ({"a": a, "b": replace(b, total_queues=3)}, "numbers of queues differ"),
        ({"a": a, "b": replace(b, bname="c")}, "is one of c"),
        ({"a": replace(a, hosted_queues={0: [item(0)], 1: [item(0, queue_id=1)]}), "b": b}, "by a and by b"),
        ({"a": a, "b": replace(b, dirty=True)}, "dirty"),
    ):
        assert problem in (whole_problem(broken) or "")
