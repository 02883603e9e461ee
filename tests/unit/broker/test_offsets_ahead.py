"""A loss of power takes messages that groups have read: they go on with those that get the same offsets."""

from pathlib import Path

import pytest
from tests.support.broker_parts import broker_parts

from pyromq.broker.flow.draft import Draft
from pyromq.broker.offsets_ahead import set_back_offsets
from pyromq.protocol.names import REVIVE_GROUP
from pyromq.protocol.record import Host

BORN = Host.of("10.1.1.1", 4000).pack()


@pytest.mark.parametrize("is_clean", [False, True])
async def test_after_a_crash_offsets_beyond_the_end_of_a_queue_are_set_back(
    tmp_path: Path, is_clean: bool
) -> None:
    with broker_parts(tmp_path) as parts:
        root = parts.store.root
        parts.add_topic("T")
        for _ in range(3):
            assert parts.appending.append(Draft("T", 0, b"x", b"", 1, BORN)).is_ok
        parts.store.dispatch()
        for group, offset in (("ahead", 5), ("behind", 2), ("at the end", 3), (REVIVE_GROUP, 9)):
            parts.offsets.commit(group, "T", 0, offset)
        parts.offsets.commit("ahead", "T", 1, 4)
        parts.offsets.commit("ahead", "Unknown", 0, 4)
        parts.offsets.persist()
    if not is_clean:
        (root / "abort").touch()
    with broker_parts(tmp_path) as parts:
        told = set_back_offsets(parts.store, parts.topics, parts.offsets)
        set_back = {} if is_clean else {("T", "ahead"): {0: 3, 1: 0}}
        assert parts.offsets.resets == set_back
        assert parts.offsets.query("ahead", "T", 0) == (5 if is_clean else 3)
        assert [parts.offsets.query(each, "T", 0) for each in ("behind", "at the end")] == [2, 3]
        if not is_clean:
            assert told[0] == (
                "group ahead had read T queue 0 up to 5, but the store has lost the messages from 3 on:"
                " it continues there"
            )
