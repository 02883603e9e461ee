"""The replica under a controller brings its log in line with its master's before it copies."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.small_stores import append, dispatch_all, small_settings

from pyromq.broker.replication.epoch_master_link import EpochMasterLink
from pyromq.clock import ManualClock
from pyromq.errors import StateError
from pyromq.protocol.epoch_replication import MasterGreeting, ReplicaGreeting, encode_report
from pyromq.store.filenames import offset_name
from pyromq.store.message_store import MessageStore


class Wire:
    """What the replica has sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None: ...


def opened(root: Path) -> MessageStore:
    return MessageStore.open(small_settings(root), clock=ManualClock(), start_flusher=False)


def take(link: EpochMasterLink, data: bytes) -> None:
    link.get_buffer(-1)[: len(data)] = data
    link.buffer_updated(len(data))


async def test_a_replica_that_deleted_the_files_in_which_the_logs_part_copies_the_whole_log_again(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as store:
        store.begin_epoch(3)
        places = [append(store, b"%04d" % number * 30).log_offset for number in range(200)]
        dispatch_all(store)
    first_file = store.settings.log_segment_bytes
    (tmp_path / "commitlog" / offset_name(0)).unlink()
    with opened(tmp_path) as store:
        assert store.log.start == first_file
        store.copying.begin()
        wire, was_cut = Wire(), asyncio.Event()
        greeting = ReplicaGreeting(2, False, False)
        link = EpochMasterLink(
            store,
            ManualClock(),
            lambda: None,
            greeting=greeting,
            confirmed=lambda _: None,
            was_cut=was_cut.set,
        )
        link.connection_made(cast(Any, wire))
        parted = next(place for place in places if place > first_file // 2)
        take(link, MasterGreeting(parted + 5000, ((3, 0), (4, parted))).encode())
        await was_cut.wait()
        assert link.is_aligned
        assert (store.log.start, store.log.end) == (0, 0)
        assert wire.sent == [greeting.encode(), encode_report(0)]


async def test_a_broker_that_became_master_while_it_connected_does_not_cut_its_log(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.begin_epoch(3)
        places = [append(store, b"%04d" % number).log_offset for number in range(3)]
        end = store.log.end
        link = EpochMasterLink(
            store,
            ManualClock(),
            lambda: None,
            greeting=ReplicaGreeting(2, False, False),
            confirmed=lambda _: None,
            was_cut=lambda: None,
        )
        link.connection_made(cast(Any, Wire()))
        take(link, MasterGreeting(places[1], ((3, 0),)).encode())
        with pytest.raises(StateError, match="the master now"):
            await link.ended
        assert store.log.end == end
