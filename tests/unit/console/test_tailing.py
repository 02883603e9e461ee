import pytest

from pyromq.admin.cluster import Cluster
from pyromq.clock import ManualClock
from pyromq.console.guarded import GuardedCluster
from pyromq.console.tailing import KEPT_ROWS, LINGER_S, MAX_READERS, Readers, TailFilter, TailReader
from pyromq.errors import ConnectFailed
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo

WANTED = TailFilter("default", ("t",))


def reader_with(count: int) -> TailReader:
    reader = TailReader(Cluster("127.0.0.1:9"), WANTED)
    for number in range(1, count + 1):
        reader.seen += 2
        reader.matched += 1
        reader._kept.append((number, {"offset": number}))
    return reader


def test_a_browser_gets_the_newest_rows_and_is_told_how_many_it_did_not_get() -> None:
    batch = reader_with(120).since(0, 50)
    assert [row["offset"] for row in batch.rows] == list(range(71, 121))
    assert (batch.last, batch.seen, batch.matched, batch.skipped) == (120, 240, 120, 70)


def test_a_browser_that_comes_back_gets_what_it_missed() -> None:
    reader = reader_with(120)
    assert [row["offset"] for row in reader.since(118, 50).rows] == [119, 120]
    assert reader.since(120, 50).rows == []
    assert reader.since(120, 50).skipped == 0


def test_only_so_many_rows_are_kept() -> None:
    reader = reader_with(KEPT_ROWS + 500)
    batch = reader.since(0, KEPT_ROWS * 2)
    assert (len(batch.rows), batch.skipped) == (KEPT_ROWS, 500)


async def test_viewers_of_one_filter_share_a_reader_that_ends_some_time_after_the_last_of_them() -> None:
    clock = ManualClock()
    async with Cluster("127.0.0.1:9", timeout_s=0.2, clock=clock) as cluster:
        readers = Readers()
        with readers.watching(cluster, WANTED) as first, readers.watching(cluster, WANTED) as second:
            assert first is second
            assert first.viewers == 2
            clock.advance(LINGER_S * 2)
            assert not first.is_forgotten()
        clock.advance(LINGER_S - 1)
        with readers.watching(cluster, WANTED) as third:
            assert third is first
        clock.advance(LINGER_S - 1)
        assert not first.is_forgotten()
        clock.advance(2)
        assert first.is_forgotten()
        with readers.watching(cluster, WANTED) as fourth:
            assert fourth is not first
        clock.advance(LINGER_S + 1)
        await readers.make_room()
        assert len(readers) == 0
        await first.stop()


async def test_a_reader_that_nobody_watches_stops_by_itself() -> None:
    clock = ManualClock()
    async with Cluster("127.0.0.1:9", timeout_s=0.2, clock=clock) as cluster:
        reader = TailReader(cluster, WANTED)
        reader.viewers = 1
        reader.leave()
        clock.advance(LINGER_S + 1)
        reader.start()
        assert reader._task is not None
        await reader._task


async def test_at_the_limit_the_reader_that_nobody_watches_makes_room() -> None:
    async with Cluster("127.0.0.1:9", timeout_s=0.2) as cluster:
        readers = Readers()
        with readers.watching(cluster, WANTED):
            for number in range(MAX_READERS):
                with readers.watching(cluster, TailFilter("default", (f"t{number}",))):
                    pass
            await readers.make_room()
            assert len(readers) == MAX_READERS - 1
        await readers.stop()


@pytest.mark.parametrize("address", ["169.254.169.254:80", "[fe80::1]:10911"])
async def test_a_link_local_address_that_a_name_server_tells_is_not_dialled(address: str) -> None:
    async with GuardedCluster("127.0.0.1:9") as cluster:
        with pytest.raises(ConnectFailed, match="link-local"):
            await cluster.ask(address, GetBrokerRuntimeInfo())
        with pytest.raises(ConnectFailed, match="link-local"):
            await cluster.apart().ask(address, GetBrokerRuntimeInfo())
        assert isinstance(cluster.copy(), GuardedCluster)
