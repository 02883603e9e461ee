"""A filter server serves pulls by those of its broker, and passes on only what matches."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ALICE, ROOT, SECURE, client, grant, user_creation
from tests.support.broker_cluster import GROUP, SUSPEND, TOPIC, Bench, BrokerClient, pull, running_broker
from tests.support.consumer_cluster import ShiftedClock
from tests.support.filter_server import (
    CLASS_FILTER,
    confined,
    directory_of_users,
    filter_server,
    module_filter,
    pull_filtered,
    recorded_uploads,
    upload,
)
from tests.support.loop import turn_until

from pyromq.errors import ConfigError
from pyromq.filterserver import filter_server as filter_server_module
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.offsets import QueryConsumerOffset
from pyromq.protocol.requests.pulling import PullMessage

pytestmark = confined

LARGE = """
def match(message, context):
    return message.decode()["amount"] > 100
"""
LOOP = """
def match(message, context):
    while message.decode()["amount"] == 150:
        pass
    return True
"""
ANSWERS_ITSELF = """
def match(message, context):
    import os, struct
    os.write(1, struct.pack(">IIc?", 6, 2, b"V", True))  # as its process would, to the second question
    while True:
        pass
"""


def orders(*amounts: int) -> list[bytes]:
    return [json.dumps({"amount": amount}).encode() for amount in amounts]


def pull_request(**fields: Any) -> PullMessage:
    return pull(0, **{"sys_flag": CLASS_FILTER, **fields})


@pytest.mark.parametrize("form", [HeaderForm.JSON, HeaderForm.BINARY])
async def test_only_what_matches_is_passed_on(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form) as bench, filter_server(bench.broker) as server:
        await bench.client.create_topic()
        for body in orders(50, 150, 70, 200):
            await bench.client.send(body)
        await bench.client.send_batch(*orders(99, 101))
        async with BrokerClient(server.address, form) as user:
            await user.call(upload(LARGE))
            pulled = await pull_filtered(user)
            assert pulled.bodies == orders(150, 200, 101)
            assert [each.queue_offset for each in pulled.messages] == [1, 3, 5]
            assert (pulled.answer.next_begin_offset, pulled.answer.max_offset) == (6, 6)
            nothing = await pull_filtered(user, 2, max_msg_nums=1)
            assert (nothing.answer.code, nothing.answer.next_begin_offset) == (
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                3,
            )
            assert (await pull_filtered(user, 6)).answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_pull_goes_on_until_something_matches(tmp_path: Path) -> None:
    async with Bench(tmp_path, HeaderForm.JSON) as bench, filter_server(bench.broker) as server:
        await bench.client.create_topic()
        for body in orders(*range(95, 102)):
            await bench.client.send(body)
        async with BrokerClient(server.address) as user:
            await user.call(upload(LARGE))
            pulled = await pull_filtered(
                user, max_msg_nums=2, sys_flag=CLASS_FILTER | SUSPEND, suspend_timeout_millis=60_000
            )
            assert pulled.bodies == orders(101)


async def test_a_broken_filter_is_an_error_and_the_offset_stays(tmp_path: Path) -> None:
    async with Bench(tmp_path, HeaderForm.JSON) as bench, filter_server(bench.broker) as server:
        await bench.client.create_topic()
        for body in (*orders(150), b"no JSON", *orders(160)):
            await bench.client.send(body)
        async with BrokerClient(server.address) as user:
            await user.call(upload(LARGE))
            refusal = await user.refusal(pull_request())
            assert refusal.code == ResponseCode.SYSTEM_ERROR
            assert "filter chosen of shop for Orders: line 3: BadBody" in str(refusal)
            # One that knows such bodies takes its place, from the same offset on.
            await user.call(upload(LARGE.replace("return", "return message.body[:1] == b'{' and")))
            assert (await pull_filtered(user)).bodies == orders(150, 160)


async def test_a_filter_that_overran_rests_and_runs_again_later(tmp_path: Path) -> None:
    clock = ShiftedClock()
    settings: dict[str, Any] = {"filter_cpu_ms": 100, "filter_rest_seconds": 1000}
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker, clock=clock, **settings) as server,
    ):
        await bench.client.create_topic()
        for body in orders(150):
            await bench.client.send(body)
        async with BrokerClient(server.address) as user:
            await user.call(upload(LOOP))
            for _ in range(2):
                refusal = await user.refusal(pull_request())
                assert "it took more than 100 ms of CPU time" in str(refusal)
            assert "It runs again in" in str(refusal)
            await bench.client.send(orders(101)[0])
            clock.advance(1001)
            assert (await pull_filtered(user, 1)).bodies == orders(101)
            # Another group's filter was never touched.
            await user.call(upload(LARGE, group="other"))
            assert (await pull_filtered(user, group="other")).bodies == orders(150, 101)


async def test_a_filter_that_goes_on_after_its_answer_is_ended(tmp_path: Path) -> None:
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker, filter_cpu_ms=100) as server,
        BrokerClient(server.address) as user,
    ):
        await bench.client.create_topic()
        await bench.client.send(b"one")
        await user.call(upload(ANSWERS_ITSELF))
        assert (await pull_filtered(user)).bodies == [b"one"]
        used = server.filters.find(GROUP, TOPIC)
        assert used is not None
        process = used.process
        assert process is not None
        await server.filters.end_those_that_go_on()
        await turn_until(lambda: process.goes_on)
        await server.filters.end_those_that_go_on()
        assert process.is_over
        assert "it went on computing after its answer" in str(await user.refusal(pull_request()))


async def test_without_the_operators_word_no_filter_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyromq.audit")
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker, takes_filters=False) as server,
        BrokerClient(server.address) as user,
    ):
        refusal = await user.refusal(upload(LARGE))
        assert refusal.code == ResponseCode.NO_PERMISSION
        assert "clientUploadFilterClassEnable=true" in str(refusal)
    (line,) = recorded_uploads(caplog)
    assert "outcome=NO_PERMISSION group=shop topic=Orders" in line


async def test_a_machine_that_does_not_confine_filters_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bench(tmp_path, HeaderForm.JSON) as bench:
        lets_all_pass = "raise PermissionError('the kernel lets filters open files')"
        monkeypatch.setattr(filter_server_module, "_ATTEMPTS", lets_all_pass)
        with pytest.raises(ConfigError, match="the kernel lets filters open files"):
            await filter_server(bench.broker).start()
        async with filter_server(bench.broker, takes_filters=False):
            pass


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("", "lets filters have any amount of memory"),
        (
            f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({1 << 28}, {1 << 28}))",
            "lets filters open files, sockets or processes",
        ),
    ],
)
def test_the_try_at_the_start_notices_what_is_not_confined(limit: str, words: str) -> None:
    source = filter_server_module._ATTEMPTS.replace("MEMORY_BYTES", str(1 << 28))
    done = subprocess.run([sys.executable, "-c", f"{limit}\n{source}"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"PermissionError: the kernel {words}" in done.stderr


async def test_bad_uploads_and_pulls_are_refused_with_the_reason(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_filters": 1, "filter_source_bytes": 200}
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker, **settings) as server,
        BrokerClient(server.address) as user,
    ):
        for request, words in (
            (upload(LARGE, class_crc=7), "does not have the CRC 7"),
            (upload(LARGE + "#" * 200), "200 are allowed"),
            (upload(b"\xff"), "not UTF-8"),
            (upload("public class Large {}"), "cannot be used: the source is not Python"),
            (pull_request(), "no filter of shop for Orders was uploaded"),
            (pull_request(sys_flag=0), "without the bit of a class filter"),
        ):
            assert words in str(await user.refusal(request))
        await user.call(upload(LARGE))
        await user.call(upload(LARGE))  # clients repeat it
        assert "takes no more" in str(await user.refusal(upload(LARGE, group="other")))


async def test_a_filter_that_nobody_uses_is_forgotten(tmp_path: Path) -> None:
    clock = ShiftedClock()
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker, clock=clock) as server,
        BrokerClient(server.address) as user,
    ):
        await user.call(upload(LARGE))
        await server.filters.forget_idle()
        assert server.filters.count() == 1
        clock.advance(601)
        await server.filters.forget_idle()
        assert server.filters.count() == 0
        assert (await user.refusal(pull_request())).code == ResponseCode.FILTER_DATA_NOT_EXIST


async def test_an_upload_needs_a_right_of_its_own_and_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyromq.audit")
    async with running_broker(tmp_path, **SECURE) as broker:
        users = directory_of_users(broker, tmp_path)
        async with (
            filter_server(broker, auth_config_path=users, **SECURE) as server,
            client(broker.address, ROOT) as root,
            client(server.address, ALICE) as alice,
            client(server.address) as stranger,
        ):
            await root.create_topic()
            await root.call(user_creation(ALICE))
            await root.call(grant(ALICE, f"Sub on Topic:{TOPIC}", f"Sub on Group:{GROUP}"))
            await server.access.check_files()
            for who in (alice, stranger):
                assert (await who.refusal(upload(LARGE))).code == ResponseCode.NO_PERMISSION
            assert (await stranger.refusal(pull_request())).code == ResponseCode.NO_PERMISSION
            # Who may only read gets as far as the filter that is not there.
            assert (await alice.refusal(pull_request())).code == ResponseCode.FILTER_DATA_NOT_EXIST
            await root.call(grant(ALICE, f"Sub,Update on Group:{GROUP}"))
            await server.access.check_files()
            await alice.call(upload(LARGE))
            await root.send(orders(150)[0])
            assert (await pull_filtered(alice)).bodies == orders(150)
    (line,) = recorded_uploads(caplog)
    assert "user=alice" in line
    assert "outcome=SUCCESS group=shop topic=Orders name='chosen'" in line


async def test_a_pull_through_a_filter_commits_the_offset_that_it_carries(tmp_path: Path) -> None:
    async with Bench(tmp_path, HeaderForm.JSON) as bench, filter_server(bench.broker) as server:
        await bench.client.create_topic()
        for body in orders(150, 160):
            await bench.client.send(body)
        async with BrokerClient(server.address) as user:
            await user.call(upload(LARGE))
            await pull_filtered(user, 1, sys_flag=CLASS_FILTER | 1, commit_offset=1)
        asked = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        assert (await bench.client.call(asked)).offset == 1


async def test_a_module_sees_the_body_and_the_properties_of_each_message(tmp_path: Path) -> None:
    # The last byte of the body is `!`, or the first of the properties is `z`.
    module = module_filter("""
        (i32.or
            (i32.eq (i32.load8_u (i32.add (local.get $place) (i32.sub (local.get $body) (i32.const 1))))
                (i32.const 33))
            (i32.and (i32.gt_u (local.get $properties) (i32.const 0))
                (i32.eq (i32.load8_u (i32.add (local.get $place) (local.get $body))) (i32.const 122))))""")
    async with Bench(tmp_path, HeaderForm.JSON) as bench, filter_server(bench.broker) as server:
        await bench.client.create_topic()
        await bench.client.send(b"one")
        await bench.client.send(b"two!")
        await bench.client.send(b"three", properties={"zone": "eu"})
        await bench.client.send(b"four", properties={"color": "red"})
        async with BrokerClient(server.address) as user:
            await user.call(upload(module))
            assert (await pull_filtered(user)).bodies == [b"two!", b"three"]
            # Source in Python may follow, and a module again.
            await user.call(upload("def match(message): return message.body == b'one'"))
            assert (await pull_filtered(user)).bodies == [b"one"]
            await user.call(upload(module))
            assert (await pull_filtered(user)).bodies == [b"two!", b"three"]


async def test_modules_are_audited_and_bad_ones_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyromq.audit")
    async with (
        Bench(tmp_path, HeaderForm.JSON) as bench,
        filter_server(bench.broker) as server,
        BrokerClient(server.address) as user,
    ):
        refusal = await user.refusal(upload(b"\0asm and no more"))
        assert "the filter cannot be used: failed to parse WebAssembly module" in str(refusal)
        await user.call(upload(module_filter("i32.const 1")))
    refused, taken = recorded_uploads(caplog)
    assert "outcome=SYSTEM_ERROR" in refused
    assert "outcome=SUCCESS" in taken
