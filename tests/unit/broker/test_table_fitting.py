"""A log has lost its end: groups go on with the messages that get the same offsets, and skip none."""

from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, broker_parts

from pyromq.broker.flow.draft import Draft
from pyromq.broker.table_fitting import fit_to_log
from pyromq.protocol.names import LMQ_PREFIX, REVIVE_GROUP, lite_queue
from pyromq.protocol.properties import INNER_MULTI_DISPATCH, encode_properties
from pyromq.protocol.record import Host

BORN = Host.of("10.1.1.1", 4000).pack()


def append(parts: BrokerParts, count: int) -> None:
    for _ in range(count):
        assert parts.appending.append(Draft("T", 0, b"x", b"", 1, BORN)).is_ok
    parts.store.dispatch()


async def test_offsets_beyond_the_end_of_a_queue_are_set_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_parts(tmp_path) as parts:
        offsets = parts.offsets
        parts.add_topic("T")
        append(parts, 3)
        for group, offset in (("ahead", 5), ("behind", 2), ("at the end", 3), (REVIVE_GROUP, 9)):
            offsets.commit(group, "T", 0, offset)
        offsets.commit("ahead", "T", 1, 4)
        offsets.commit("ahead", "Unknown", 0, 4)
        fit_to_log(parts.store, parts.tables)
        groups = ("ahead", "behind", "at the end", REVIVE_GROUP)
        assert [offsets.query(each, "T", 0) for each in groups] == [3, 2, 3, 3]
        assert [
            offsets.query("ahead", topic, queue_id) for topic, queue_id in (("T", 1), ("Unknown", 0))
        ] == [
            0,
            4,
        ]
        assert (
            "group ahead had read T queue 0 up to 5, but the messages from 3 on are lost: it continues there"
            in caplog.messages
        )


async def test_what_is_set_back_is_on_disk_before_other_messages_take_the_place_of_the_lost(
    tmp_path: Path,
) -> None:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("T")
        append(parts, 3)
        parts.offsets.commit("g", "T", 0, 5)
        parts.offsets.persist()
        fit_to_log(parts.store, parts.tables)
        append(parts, 3)
    with broker_parts(tmp_path) as parts:
        assert parts.offsets.query("g", "T", 0) == 3


async def test_offsets_beyond_the_end_of_a_light_queue_are_set_back(tmp_path: Path) -> None:
    name = f"{LMQ_PREFIX}device"
    properties = encode_properties({INNER_MULTI_DISPATCH: name}).encode()
    light = {"light_queues": True, "multi_dispatch": True}
    with broker_parts(tmp_path, store=light) as parts:
        parts.add_topic("T")
        for _ in range(3):
            assert parts.appending.append(Draft("T", 0, b"x", properties, 1, BORN)).is_ok
        parts.store.dispatch()
        parts.offsets.commit("ahead", name, 0, 5)
        parts.offsets.commit("behind", name, 0, 2)
        fit_to_log(parts.store, parts.tables)
        assert [parts.offsets.query(group, name, 0) for group in ("ahead", "behind")] == [3, 2]


@pytest.mark.parametrize("lost_by", ["crash", "cut"])
async def test_a_group_beyond_the_end_of_a_lite_topic_begins_again(tmp_path: Path, lost_by: str) -> None:
    """The lite topic may have expired and been made again: nobody knows which of its messages were read."""
    name = lite_queue("T", "device")
    properties = encode_properties({INNER_MULTI_DISPATCH: name}).encode()
    with broker_parts(tmp_path, store={"light_queues": True, "multi_dispatch": True}) as parts:
        parts.add_topic("T")
        for _ in range(3):
            assert parts.appending.append(Draft("T", 0, b"x", properties, 1, BORN)).is_ok
        parts.store.dispatch()
        for group, offset in (("ahead", 5), ("behind", 2)):
            parts.offsets.commit(group, name, 0, offset)
        fit_to_log(parts.store, parts.tables)
        assert parts.offsets.query("ahead", name, 0) == 5  # nothing was lost
        if lost_by == "crash":
            parts.store.recovery.was_clean = False
        else:
            parts.store.cutting.cuts += 1
        fit_to_log(parts.store, parts.tables)
        assert [parts.offsets.query(group, name, 0) for group in ("ahead", "behind")] == [0, 2]
        assert not parts.offsets.resets


async def test_a_group_that_goes_on_from_memory_is_held_to_the_end_until_it_reads_from_before_it(
    tmp_path: Path,
) -> None:
    with broker_parts(tmp_path) as parts:
        offsets = parts.offsets
        parts.add_topic("T")
        append(parts, 3)
        offsets.commit("g", "T", 0, 2)
        fit_to_log(parts.store, parts.tables)
        append(parts, 10)
        offsets.commit("g", "T", 0, 5)
        assert offsets.query("g", "T", 0) == 2
        assert [offsets.take_reset("g", "T", 0, reads_at=5) for _ in range(2)] == [2, 2]
        offsets.commit("g", "T", 0, 3)
        assert offsets.query("g", "T", 0) == 3
        assert offsets.take_reset("g", "T", 0, reads_at=3) is None
        assert not offsets.resets
        assert offsets.take_reset("g", "T", 0, reads_at=9) is None
        offsets.commit("g", "T", 0, 9)
        assert offsets.query("g", "T", 0) == 9


async def test_a_group_that_is_new_begins_where_it_likes(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        parts.add_topic("T")
        append(parts, 3)
        fit_to_log(parts.store, parts.tables)
        append(parts, 3)
        assert parts.offsets.take_reset("new", "T", 0, reads_at=6) is None


async def test_an_operators_reset_is_stronger_than_the_end_that_was_found(tmp_path: Path) -> None:
    with broker_parts(tmp_path) as parts:
        offsets = parts.offsets
        parts.add_topic("T")
        append(parts, 3)
        offsets.commit("g", "T", 0, 2)
        fit_to_log(parts.store, parts.tables)
        offsets.assign_reset("g", "T", 0, 1)
        fit_to_log(parts.store, parts.tables)
        assert offsets.query("g", "T", 0) == 1
        assert offsets.take_reset("g", "T", 0, reads_at=2) == 1
