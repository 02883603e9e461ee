"""A broker that cannot keep up, or whose disk cannot, says so and says why; and goes on when it can again."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import GROUP, TOPIC, Bench, BrokerClient, message, pull, running_broker
from tests.support.faulty_files import FaultyFiles
from tests.support.loop import turn_until
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.clock import ManualClock
from pyromq.errors import Refused, StoreError
from pyromq.filesystem import Space
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.standalone import Standalone, StandaloneSettings

FULL = Space(1000, 5, False)
ROOMY = Space(1000, 900, False)


class StallingClock(ManualClock):
    """Time passes at every look, as if whatever happens between two looks took that long.

    Only looks of the loop count: how often threads look depends on the machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step_s = 0.0
        self._thread = threading.get_ident()

    def monotonic(self) -> float:
        if threading.get_ident() == self._thread:
            self.advance(self.step_s)
        return super().monotonic()


def burst(form: HeaderForm, count: int = 40) -> list[Frame]:
    """Sends that come in one piece, so that the later ones wait for the earlier ones."""
    return [encode_request(message(b"%d" % number), number, form=form) for number in range(count)]


async def sent_in_one_piece(broker: Broker, form: HeaderForm) -> list[Frame]:
    client = await WireClient.connect(broker.address)
    frames = burst(form)
    client.send(*frames)
    answers = await client.frames(len(frames))
    await client.close()
    return answers


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize(
    ("step_s", "prefix"), [(0.05, "[TIMEOUT_CLEAN_QUEUE]"), (1.5, "[PCBUSY_CLEAN_QUEUE]")]
)
async def test_sends_that_waited_too_long_are_refused_at_once(
    tmp_path: Path, form: HeaderForm, step_s: float, prefix: str
) -> None:
    clock = StallingClock()
    async with running_broker(tmp_path, clock=clock, fast_failure=True) as broker:
        async with BrokerClient(broker.address, form) as client:
            await client.create_topic()
        clock.step_s = step_s
        answers = await sent_in_one_piece(broker, form)
        clock.step_s = 0.0
        refused = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
        stored = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        assert refused
        assert stored
        assert len(refused) + len(stored) == len(answers)
        assert all((answer.remark or "").startswith(prefix) for answer in refused)
        assert broker.store.queues.max_offset(TOPIC, 0) == len(stored), "what was refused is not stored"
        async with BrokerClient(broker.address, form) as client:
            await client.send(b"it goes on")


@pytest.mark.parametrize("form", HeaderForm)
async def test_waiting_may_be_allowed(tmp_path: Path, form: HeaderForm) -> None:
    clock = StallingClock()
    async with running_broker(tmp_path, clock=clock, fast_failure=True) as broker:
        async with BrokerClient(broker.address, form) as client:
            await client.call(UpdateBrokerConfig(body="brokerFastFailureEnable=false\n"))
        clock.step_s = 0.01
        answers = await sent_in_one_piece(broker, form)
        clock.step_s = 0.0
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def test_a_standalone_cluster_lets_sends_wait(tmp_path: Path) -> None:
    clock = StallingClock()
    settings = StandaloneSettings(store=tmp_path, namesrv_port=0, broker_port=0)
    async with Standalone(settings, clock=clock) as cluster:
        clock.step_s = 0.01
        answers = await sent_in_one_piece(cluster.broker, HeaderForm.JSON)
        clock.step_s = 0.0
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_full_disk_refuses_messages_and_serves_consumers(
    tmp_path: Path, error_logs: ErrorLogs, form: HeaderForm
) -> None:
    files = FaultyFiles(tmp_path)
    settings = {"disk_warning_percent": 90, "clean_forcibly": False, "clean_interval_ms": 10}
    async with (
        running_broker(tmp_path, files=files, store=settings) as broker,
        BrokerClient(broker.address, form) as client,
    ):
        await client.send(b"before")
        files.space_now = FULL
        await turn_until(lambda: broker.store.faults)
        refusal = await client.refusal(message(b"no room"))
        assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "disk" in (refusal.remark or "")
        assert (await client.pull()).bodies == [b"before"]
        files.space_now = ROOMY
        await turn_until(lambda: not broker.store.faults)
        await client.send(b"after")
        assert (await client.pull()).bodies == [b"before", b"after"]
        await turn_until(lambda: error_logs.records)
        error_logs.expect("the store accepts no messages")


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_log_file_that_cannot_be_made_refuses_messages(
    tmp_path: Path, error_logs: ErrorLogs, form: HeaderForm
) -> None:
    files = FaultyFiles(tmp_path)
    async with (
        running_broker(tmp_path, files=files, store={"log_segment_bytes": 8192}) as broker,
        BrokerClient(broker.address, form) as client,
    ):
        await client.create_topic()
        files.failures["create"] = errno.ENOSPC
        outcomes = await asyncio.gather(
            *(client.send(b"x" * 2000) for _ in range(12)), return_exceptions=True
        )
        refusals = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert refusals
        assert all(isinstance(each, Refused) for each in refusals)
        assert {each.code for each in refusals if isinstance(each, Refused)} <= {
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_ERROR,
        }
        del files.failures["create"]
        await turn_until(lambda: not broker.store.faults)
        stored = broker.store.queues.max_offset(TOPIC, 0)
        assert (await client.send(b"after")).queue_offset == stored
        error_logs.records.clear()


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_failing_sync_is_told_to_those_who_wait_for_it(
    tmp_path: Path, error_logs: ErrorLogs, form: HeaderForm
) -> None:
    files = FaultyFiles(tmp_path)
    settings = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 200}
    async with (
        running_broker(tmp_path, files=files, store=settings) as broker,
        BrokerClient(broker.address, form) as client,
    ):
        await client.send(b"safe")
        files.failures["sync"] = errno.EIO
        answer = await client.send(b"not safe")
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        del files.failures["sync"]
    error_logs.records.clear()


@pytest.mark.parametrize("form", HeaderForm)
async def test_too_many_pulls_that_wait_are_refused(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form, max_in_flight_per_connection=10) as bench:
        await bench.client.create_topic()
        waiting = [asyncio.create_task(bench.client.pull(hold_ms=60_000)) for _ in range(10)]
        await turn_until(lambda: bench.broker.statistics().held_pulls == 10)
        refusal = await bench.client.refusal(pull(hold_ms=60_000))
        assert refusal.code == ResponseCode.SYSTEM_BUSY
        assert (refusal.remark or "").startswith("[OVERLOAD]")
        # What need not wait is served all the same, and others are not concerned.
        await bench.client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=0)
        )
        other = await bench.new_client("other")
        await other.send(b"x")
        assert [pulled.bodies for pulled in await asyncio.gather(*waiting)] == [[b"x"]] * 10


async def test_a_store_can_be_opened_by_one_broker_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises(StoreError):
            async with running_broker(tmp_path):
                pass


async def test_progress_of_delays_that_cannot_be_written_ends_nothing(
    tmp_path: Path, error_logs: ErrorLogs, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(tmp_path)
    async with (
        running_broker(tmp_path, files=files, flush_delay_offsets_ms=10) as broker,
        BrokerClient(broker.address) as client,
    ):
        running = asyncio.create_task(broker.run_until_stopped())
        await client.create_topic()
        await client.pull()  # which makes the group
        files.failures["write"] = errno.ENOSPC
        await client.send(b"delayed", properties={"DELAY": "1"})
        assert (await client.pull(hold_ms=60_000)).bodies == [b"delayed"]
        await turn_until(lambda: "tried again file=delayOffset.json" in caplog.text)
        assert not running.done()
        del files.failures["write"]
        await turn_until((tmp_path / "config" / "delayOffset.json").exists)
    await running
    error_logs.records.clear()


async def test_a_stop_with_a_full_disk_keeps_what_it_can(tmp_path: Path, error_logs: ErrorLogs) -> None:
    files = FaultyFiles(tmp_path)
    async with running_broker(tmp_path, files=files) as broker, BrokerClient(broker.address) as client:
        await client.send(b"kept", properties={"DELAY": "1"})
        await client.pull(commit=1)
        files.failures["write"] = errno.ENOSPC
        await broker.stop()
    assert "offsets could not be written" in str(error_logs.messages)
    error_logs.records.clear()
    async with running_broker(tmp_path) as broker:
        assert broker.store.recovery.was_clean
